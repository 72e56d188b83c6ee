/* The loops of messages between rank 0, which is timed, and the last rank: as osu_latency and osu_bw have them. Those of
 * onesided have the same form: cli/src/bench/messages. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* The largest message, and the most messages of a window: of 1 MiB and above, a quarter as many. */
enum { LARGEST = 4 << 20, MOST = 64 };

enum { DATA, CONTROL };

static char *out;   /* LARGEST bytes, which all messages have */
static char *into;  /* a place for each message of a window */

static void send_one(int to, int tag, uint64_t size) { MPI_Send(out, (int)size, MPI_BYTE, to, tag, MPI_COMM_WORLD); }

static void receive_one(int from, int tag, uint64_t size) {
    MPI_Recv(into, (int)size, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send_all(int to, const struct command *command, MPI_Request *requests) {
    for (uint64_t k = 0; k < command->argument; k++)
        MPI_Isend(out, (int)command->size, MPI_BYTE, to, DATA, MPI_COMM_WORLD, &requests[k]);
}

static void receive_all(int from, const struct command *command) {
    MPI_Request requests[MOST];
    for (uint64_t k = 0; k < command->argument; k++)
        MPI_Irecv(into + k * command->size, (int)command->size, MPI_BYTE, from, DATA, MPI_COMM_WORLD, &requests[k]);
    MPI_Waitall((int)command->argument, requests, MPI_STATUSES_IGNORE);
}

/* There and back. */
static void ping_pong(const struct peer *peer, const struct command *command, uint64_t times) {
    int first = peer->rank == 0, other = first ? peer->target : 0;
    for (uint64_t i = 0; i < times; i++) {
        if (first) send_one(other, DATA, command->size);
        receive_one(other, DATA, command->size);
        if (!first) send_one(other, DATA, command->size);
    }
}

/* Windows of `argument` messages, and an empty one back. */
static void stream(const struct peer *peer, const struct command *command, uint64_t times) {
    MPI_Request requests[MOST];
    for (uint64_t i = 0; i < times; i++) {
        if (peer->rank == 0) {
            send_all(peer->target, command, requests);
            MPI_Waitall((int)command->argument, requests, MPI_STATUSES_IGNORE);
            receive_one(peer->target, DATA, 0);
        } else {
            receive_all(0, command);
            send_one(0, DATA, 0);
        }
    }
}

/* The same, but the receives are posted when a later message has arrived. */
static void unexpected(const struct peer *peer, const struct command *command, uint64_t times) {
    MPI_Request requests[MOST];
    for (uint64_t i = 0; i < times; i++) {
        if (peer->rank == 0) {
            send_all(peer->target, command, requests);
            send_one(peer->target, CONTROL, 0);
            MPI_Waitall((int)command->argument, requests, MPI_STATUSES_IGNORE);
            receive_one(peer->target, DATA, 0);
        } else {
            receive_one(0, CONTROL, 0);
            receive_all(0, command);
            send_one(0, DATA, 0);
        }
    }
}

static void allocate(void) {
    if (out != NULL) return;
    out = aligned_alloc(4096, LARGEST);
    into = aligned_alloc(4096, (size_t)MOST / 4 * LARGEST);
    if (out == NULL || into == NULL) abort();
    memset(out, 1, LARGEST); /* of `into` the loops touch what they use before they are timed */
}

int message_probe(const struct peer *peer, const struct command *command, double *answer) {
    static const struct {
        const char *name;
        void (*loop)(const struct peer *, const struct command *, uint64_t);
    } loops[] = {{"ping_pong", ping_pong}, {"stream", stream}, {"unexpected", unexpected}};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        if (strcmp(loops[i].name, command->probe) != 0) continue;
        if (command->argument > MOST || command->size * command->argument > (uint64_t)MOST / 4 * LARGEST) return 0;
        allocate();
        MPI_Barrier(MPI_COMM_WORLD);
        if (peer->rank == 0 || peer->rank == peer->target) {
            loops[i].loop(peer, command, command->times / 8 + 1);
            double start = now();
            loops[i].loop(peer, command, command->times);
            *answer = peer->rank == 0 ? now() - start : 0;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        return 1;
    }
    return 0;
}
