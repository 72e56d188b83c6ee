/* The loops of collectives, which all ranks call again and again; rank 0 is timed. Those of onesided have the same form:
 * cli/src/bench/collectives.rs. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* The most bytes of a rank, and of its blocks of all ranks together. */
enum { LARGEST = 1 << 20 };

static double *data;  /* LARGEST bytes */
static double *all;   /* as many again, for what is received */

static void barrier(const struct peer *peer, const struct command *command, uint64_t times) {
    (void)peer, (void)command;
    for (uint64_t i = 0; i < times; i++) MPI_Barrier(MPI_COMM_WORLD);
}

static void all_reduce(const struct peer *peer, const struct command *command, uint64_t times) {
    (void)peer;
    int count = (int)(command->size / sizeof(double));
    for (uint64_t i = 0; i < times; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* From each rank in turn, so that no root runs ahead of the others. */
static void broadcast(const struct peer *peer, const struct command *command, uint64_t times) {
    int count = (int)(command->size / sizeof(double));
    for (uint64_t i = 0; i < times; i++) MPI_Bcast(data, count, MPI_DOUBLE, (int)(i % peer->ranks), MPI_COMM_WORLD);
}

static void all_gather(const struct peer *peer, const struct command *command, uint64_t times) {
    (void)peer;
    int count = (int)(command->size / sizeof(double));
    for (uint64_t i = 0; i < times; i++)
        MPI_Allgather(data, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void all_to_all(const struct peer *peer, const struct command *command, uint64_t times) {
    (void)peer;
    int count = (int)(command->size / sizeof(double));
    for (uint64_t i = 0; i < times; i++) MPI_Alltoall(data, count, MPI_DOUBLE, all, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void allocate(void) {
    if (data != NULL) return;
    data = aligned_alloc(4096, LARGEST);
    all = aligned_alloc(4096, LARGEST);
    if (data == NULL || all == NULL) abort();
    memset(data, 0, LARGEST);
    memset(all, 0, LARGEST);
}

int collective_probe(const struct peer *peer, const struct command *command, double *answer) {
    static const struct {
        const char *name;
        int blocks; /* whether the size is that of a block of each rank */
        void (*loop)(const struct peer *, const struct command *, uint64_t);
    } loops[] = {{"barrier", 0, barrier},
                 {"all_reduce", 0, all_reduce},
                 {"broadcast", 0, broadcast},
                 {"all_gather", 1, all_gather},
                 {"all_to_all", 1, all_to_all}};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        if (strcmp(loops[i].name, command->probe) != 0) continue;
        if (command->size * (loops[i].blocks ? (uint64_t)peer->ranks : 1) > LARGEST) return 0;
        allocate();
        MPI_Barrier(MPI_COMM_WORLD);
        loops[i].loop(peer, command, command->times / 8 + 1);
        double start = now();
        loops[i].loop(peer, command, command->times);
        *answer = peer->rank == 0 ? now() - start : 0;
        MPI_Barrier(MPI_COMM_WORLD);
        return 1;
    }
    return 0;
}
