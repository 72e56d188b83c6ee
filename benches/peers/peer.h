/* Shared by the parts of an MPI peer of `onesided bench peers`: peer.c reads commands, probes.c executes them, those of
 * messages messages.c, those of collectives collectives.c, that of overlap overlap.c. */
#ifndef PEER_H
#define PEER_H

#include <mpi.h>
#include <stdint.h>

/* The window memory of the target in bytes, equal to that of onesided's window. */
enum { ROOM = 16 << 20 };

/* The state of a rank. Operations go from rank 0 to the last rank. */
struct peer {
    int rank, ranks, target;
    MPI_Win window;  /* ROOM bytes on each rank */
    char *buffer;    /* ROOM bytes of this rank's own */
};

/* A command: the probe, the bytes of an operation, the number of operations, and an argument of the probe. */
struct command {
    char probe[32];
    uint64_t size, times, argument;
};

/* Executes a command together with all ranks. `answer` on rank 0: the nanoseconds that all `times` took, or the probe's own
 * result. Returns 0 if there is no such probe. */
int probe(const struct peer *peer, const struct command *command, double *answer);

/* The same for probes of messages between two ranks. */
int message_probe(const struct peer *peer, const struct command *command, double *answer);

/* The same for probes of collectives. */
int collective_probe(const struct peer *peer, const struct command *command, double *answer);

/* The same for messages between two ranks that compute. */
int overlap_probe(const struct peer *peer, const struct command *command, double *answer);

/* Nanoseconds of the clock that all processes of the host share. */
double now(void);

#endif
