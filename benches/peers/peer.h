/* What the two halves of an MPI peer of `onesided bench peers` share: peer.c talks and waits, probes.c does. */
#ifndef PEER_H
#define PEER_H

#include <mpi.h>
#include <stdint.h>

/* In bytes: the target's part of the window, as large as the window of onesided beside it. */
enum { ROOM = 16 << 20 };

/* What every rank has. Operations go from rank 0 to the part of the last rank. */
struct peer {
    int rank, ranks, target;
    MPI_Win window;  /* ROOM bytes on each rank */
    char *buffer;    /* ROOM bytes of this rank's own */
};

/* A command: what, how many bytes an operation has, how often, and what else the probe wants to know. */
struct command {
    char probe[32];
    uint64_t size, times, argument;
};

/* Nanoseconds of the clock that all processes of the host share. */
double now(void);

/* Carries a command out together with all ranks. The answer, into `answer`: on rank 0 how many nanoseconds all `times`
 * took, or what the probe says. Returns 0 if there is no such probe. */
int probe(const struct peer *peer, const struct command *command, double *answer);

#endif
