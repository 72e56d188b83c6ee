/* Whether a message moves while a rank computes: rank 0 receives, the last rank sends. That of onesided has the same form:
 * cli/src/bench/overlap.rs. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* The flags of the argument: what the two ranks do, and whose time rank 0 answers. Other bits are for onesided alone. */
enum { RECEIVER_COMPUTES = 1, SENDER_COMPUTES = 2, LATE = 4, OF_SENDER = 8 };

enum { CONTROL, DATA };

/* How long a rank computes, and how long the other side waits, so that a receive is posted first, or a message announced
 * first; in nanoseconds. */
static const double COMPUTES = 1.8e6, LATER = 2e5;

static uint64_t turns; /* of a computation of COMPUTES on a core of its own */

/* The nanoseconds of a computation of so many turns. */
static double compute(uint64_t count) {
    uint64_t value = 1;
    double start = now();
    for (uint64_t i = 0; i < count; i++) {
        value = (value * UINT64_C(0x9e3779b97f4a7c15)) ^ (value >> 29);
        __asm__ volatile("" : "+r"(value));
    }
    return now() - start;
}

static double shortest(uint64_t count) {
    double least = compute(count);
    for (int i = 0; i < 4; i++) {
        double took = compute(count);
        if (took < least) least = took;
    }
    return least;
}

static void calibrate(void) {
    if (turns != 0) return;
    uint64_t count = 1000;
    while (shortest(count) < COMPUTES / 4) count *= 2;
    turns = (uint64_t)((double)count * COMPUTES / shortest(count));
}

static void spin_for(double nanos) {
    for (double start = now(); now() - start < nanos;) {}
}

/* The nanoseconds of a send or a receive. */
static double transfer(const struct peer *peer, const struct command *command) {
    int receives = peer->rank == 0;
    uint64_t computes = command->argument & (receives ? RECEIVER_COMPUTES : SENDER_COMPUTES);
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    if (receives == ((command->argument & LATE) != 0)) spin_for(LATER);
    double start = now();
    if (receives) MPI_Irecv(peer->buffer, (int)command->size, MPI_BYTE, peer->target, DATA, MPI_COMM_WORLD, &request);
    else MPI_Isend(peer->buffer, (int)command->size, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &request);
    if (computes) compute(turns);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return now() - start;
}

int overlap_probe(const struct peer *peer, const struct command *command, double *answer) {
    if (strcmp(command->probe, "overlap") != 0) return 0;
    int of_sender = (command->argument & OF_SENDER) != 0;
    uint64_t computes = command->argument & (of_sender ? SENDER_COMPUTES : RECEIVER_COMPUTES);
    calibrate();
    for (uint64_t i = 0; i < command->times; i++) {
        double times[2]; /* of the transfer, and of the computation alone */
        times[1] = compute(turns);
        times[0] = transfer(peer, command);
        if (peer->rank != 0) MPI_Send(times, 2, MPI_DOUBLE, 0, CONTROL, MPI_COMM_WORLD);
        else {
            double sender[2];
            MPI_Recv(sender, 2, MPI_DOUBLE, peer->target, CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (of_sender) memcpy(times, sender, sizeof times);
            *answer += computes ? times[0] / times[1] * COMPUTES : times[0];
        }
    }
    return 1;
}
