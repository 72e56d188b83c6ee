/* The timed loops. Those of onesided have the same form: cli/src/bench/peers/probes.rs. */
#define _GNU_SOURCE
#include "peer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The number of operations before one flush, each with its own displacement. */
enum { MANY = 64 };

/* Displacements at the target: one for each operation that depends on the value it finds. */
enum { COUNTER = 128, SWAPPED = 256, SUM = 384 };

static volatile uint64_t sink;

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void lock(const struct peer *peer, int target) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, peer->window);
}

static void put(const struct peer *peer, MPI_Aint place, const void *from, uint64_t size) {
    MPI_Put(from, (int)size, MPI_BYTE, peer->target, place, (int)size, MPI_BYTE, peer->window);
}

static void flush(const struct peer *peer) { MPI_Win_flush(peer->target, peer->window); }

#define LOOP(name, ...)                                                                          \
    static void name(const struct peer *peer, const struct command *command, uint64_t times) {   \
        uint64_t size = command->size, sum = 0;                                                  \
        for (uint64_t i = 0; i < times; i++) { __VA_ARGS__; }                                    \
        sink = sum + size;                                                                       \
    }

LOOP(lock_unlock, lock(peer, peer->target); MPI_Win_unlock(peer->target, peer->window))
LOOP(lock_put_unlock, lock(peer, peer->target); put(peer, 0, &i, sizeof i); MPI_Win_unlock(peer->target, peer->window))

/* The lock is held around the following loops. */
LOOP(put_flush, put(peer, 0, peer->buffer, size); flush(peer))
LOOP(get_flush, MPI_Get(peer->buffer, (int)size, MPI_BYTE, peer->target, 0, (int)size, MPI_BYTE, peer->window);
     flush(peer))
LOOP(put_many, for (MPI_Aint k = 0; k < MANY; k++) put(peer, k * (MPI_Aint)size, peer->buffer + k * size, size);
     flush(peer))
LOOP(get_many, for (MPI_Aint k = 0; k < MANY; k++)
         MPI_Get(peer->buffer + k * size, (int)size, MPI_BYTE, peer->target, k * (MPI_Aint)size, (int)size, MPI_BYTE,
                 peer->window);
     flush(peer))
LOOP(accumulate, uint64_t one = 1;
     MPI_Accumulate(&one, 1, MPI_UINT64_T, peer->target, SUM, 1, MPI_UINT64_T, MPI_SUM, peer->window); flush(peer))
LOOP(fetch_and_op, uint64_t one = 1, old;
     MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, peer->target, COUNTER, MPI_SUM, peer->window); flush(peer); sum += old)

/* Each swap finds what it expects. */
static void compare_and_swap(const struct peer *peer, const struct command *command, uint64_t times) {
    uint64_t sum = 0, zero = 0;
    (void)command;
    put(peer, SWAPPED, &zero, sizeof zero);
    flush(peer);
    for (uint64_t i = 0; i < times; i++) {
        uint64_t new = i + 1, old;
        MPI_Compare_and_swap(&new, &i, &old, MPI_UINT64_T, peer->target, SWAPPED, peer->window);
        flush(peer);
        sum += old;
    }
    sink = sum;
}

/* Rank 0 runs the loop; the others are in a barrier, where MPI makes progress. */
static double timed(const struct peer *peer, const struct command *command,
                    void (*loop)(const struct peer *, const struct command *, uint64_t), int held) {
    double taken = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (peer->rank == 0) {
        if (held) lock(peer, peer->target);
        loop(peer, command, command->times / 8 + 1); /* warms the caches */
        double start = now();
        loop(peer, command, command->times);
        taken = now() - start;
        if (held) MPI_Win_unlock(peer->target, peer->window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return taken;
}

/* The time rank 0 takes to allocate windows of `size` bytes a rank; with `argument` 1 until each rank has written to every
 * page of its memory, with 2 until the window is freed. */
static double allocate(const struct peer *peer, const struct command *command) {
    double taken = 0;
    for (uint64_t i = 0; i < command->times; i++) {
        MPI_Win window;
        char *base;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now();
        MPI_Win_allocate((MPI_Aint)command->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
        if (command->argument & 1)
            for (uint64_t at = 0; at < command->size; at += 4096) *(volatile uint64_t *)(base + at) = 1;
        double used = now();
        MPI_Win_free(&window);
        taken += (command->argument & 2 ? now() : used) - start;
    }
    return peer->rank == 0 ? taken : 0;
}

static void compute(double nanos) {
    uint64_t sum = 0;
    for (double start = now(); now() - start < nanos;)
        for (uint64_t i = 0; i < 1000; i++) {
            sum += i;
            __asm__ volatile("" : "+r"(sum));
        }
}

/* The first lock, put and unlock after a pause, while the target computes for `argument` ms, or is in a barrier if 0. */
static double first_lock(const struct peer *peer, const struct command *command) {
    double taken = 0;
    uint64_t value = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (peer->rank == 0) {
        usleep(10000);
        double start = now();
        lock(peer, peer->target);
        put(peer, 0, &value, sizeof value);
        MPI_Win_unlock(peer->target, peer->window);
        taken = now() - start;
    } else if (peer->rank == peer->target) compute((double)command->argument * 1e6);
    MPI_Barrier(MPI_COMM_WORLD);
    return taken;
}

static void sleep_until(double nanos) {
    struct timespec time = {(time_t)(nanos / 1e9), (long)(nanos - (double)(time_t)(nanos / 1e9) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {}
}

static volatile int over;
static double end;

static void *watch(void *unused) {
    sleep_until(end);
    over = 1;
    return unused;
}

/* All ranks contend for the lock of rank 0, from `argument` (clock time in ns) for `times` ms; returns this rank's acquisitions. */
static double contend(const struct peer *peer, const struct command *command) {
    uint64_t acquired = 0;
    pthread_t watcher;
    over = 0;
    end = (double)command->argument + (double)command->times * 1e6;
    MPI_Barrier(MPI_COMM_WORLD);
    if (pthread_create(&watcher, NULL, watch, NULL) != 0) abort();
    sleep_until((double)command->argument);
    for (; !over; acquired++) {
        lock(peer, 0);
        MPI_Win_unlock(0, peer->window);
    }
    pthread_join(watcher, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)acquired;
}

int probe(const struct peer *peer, const struct command *command, double *answer) {
    if (message_probe(peer, command, answer) || collective_probe(peer, command, answer) ||
        overlap_probe(peer, command, answer))
        return 1;
    static const struct {
        const char *name;
        void (*loop)(const struct peer *, const struct command *, uint64_t);
        int held;
    } loops[] = {
        {"lock_unlock", lock_unlock, 0},
        {"lock_put_unlock", lock_put_unlock, 0},
        {"put", put_flush, 1},
        {"get", get_flush, 1},
        {"put_many", put_many, 1},
        {"get_many", get_many, 1},
        {"accumulate", accumulate, 1},
        {"fetch_and_op", fetch_and_op, 1},
        {"compare_and_swap", compare_and_swap, 1},
    };
    static const struct {
        const char *name;
        double (*run)(const struct peer *, const struct command *);
    } others[] = {{"allocate", allocate}, {"first_lock", first_lock}, {"contend", contend}};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (strcmp(loops[i].name, command->probe) == 0) {
            *answer = timed(peer, command, loops[i].loop, loops[i].held);
            return 1;
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, command->probe) == 0) {
            *answer = others[i].run(peer, command);
            return 1;
        }
    return 0;
}
