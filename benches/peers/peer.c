/* A rank of the MPI jobs that `onesided bench peers` compares itself with, the same source for every MPI.
 *
 *     mpicc -O2 -o peer peer.c probes.c messages.c collectives.c overlap.c -lpthread && mpiexec -n 2 ./peer SOCKET
 *
 * Each rank is pinned to one core and executes commands from the Unix socket, one a line:
 * `PROBE SIZE TIMES ARGUMENT`; it answers with a number, or `?` for a probe that it does not know. Between two commands
 * it sleeps in a read and leaves the cores to the program that is measured. It exits when the socket is closed.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Pins this process to one core, round robin by rank, before MPI allocates memory and starts threads. The process
 * manager passes the rank. */
static void pin(void) {
    const char *rank = getenv("PMI_RANK");
    cpu_set_t allowed, mine;
    if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL || sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("which core");
    int nth = atoi(rank) % CPU_COUNT(&allowed);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && nth-- == 0) {
            CPU_ZERO(&mine);
            CPU_SET(core, &mine);
            if (sched_setaffinity(0, sizeof mine, &mine) != 0) fail("sched_setaffinity");
        }
}

static FILE *call(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        fprintf(stderr, "%s: longer than the path of a socket may be\n", path);
        exit(1);
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail(path);
    FILE *stream = fdopen(fd, "r+");
    if (stream == NULL) fail(path);
    setvbuf(stream, NULL, _IOLBF, BUFSIZ);
    return stream;
}

int main(int argc, char **argv) {
    struct peer peer;
    struct command command;
    char line[128];
    void *base;
    if (argc != 2) {
        fprintf(stderr, "usage: mpiexec -n RANKS peer SOCKET\n");
        return 2;
    }
    pin();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
    peer.target = peer.ranks - 1;
    peer.buffer = aligned_alloc(4096, ROOM);
    if (peer.buffer == NULL) fail("memory");
    memset(peer.buffer, 1, ROOM);
    MPI_Win_allocate(ROOM, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &peer.window);
    memset(base, 0, ROOM);
    MPI_Barrier(MPI_COMM_WORLD);

    FILE *caller = call(argv[1]);
    fprintf(caller, "%d\n", peer.rank);
    while (fgets(line, sizeof line, caller) != NULL) {
        double answer = 0;
        int read = sscanf(line, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64, command.probe, &command.size, &command.times,
                          &command.argument);
        if (read != 4 || command.size > ROOM || !probe(&peer, &command, &answer)) fprintf(caller, "?\n");
        else fprintf(caller, "%.0f\n", answer);
    }
    fclose(caller);
    MPI_Win_free(&peer.window);
    MPI_Finalize();
    free(peer.buffer);
    return 0;
}
