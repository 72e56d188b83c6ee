/* The limits of this machine in plain C, to check those that `onesided bench locks` measures for itself.
 *
 *     gcc -O2 -Wall -Wextra -o target/limits benches/limits.c && target/limits
 *
 * Processes over one shared anonymous mapping, each kept on one core. Every figure is the median of 7 runs; a run of a
 * loop is the median of 31 batches of about 0.5 ms, the loops in turns.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 7, BATCHES = 31, LARGEST = 4 << 20, MOST = 8, LOOPS = 12, ROUND_TRIPS = 5000 };

typedef _Atomic uint64_t word;

/* A process's node in the queue of the MCS lock. */
struct node {
    _Alignas(128) _Atomic(struct node *) next;
    _Atomic uint32_t state;
};

/* Shared by all processes; concurrently written words are two cache lines apart. */
static struct shared {
    _Alignas(128) word lock;
    _Alignas(128) word other;
    _Alignas(128) word ready;
    _Alignas(128) word begun;
    _Alignas(128) word over;
    _Alignas(128) word next; /* the ticket lock's */
    _Alignas(128) word serving;
    _Alignas(128) word ping;
    _Alignas(128) word pong;
    _Alignas(128) pthread_mutex_t mutex;
    _Alignas(128) _Atomic(struct node *) tail; /* the MCS lock's */
    struct node nodes[MOST];
    _Alignas(128) _Atomic uint32_t bell;
    _Alignas(128) uint64_t counts[MOST];
    _Alignas(4096) char bytes[LARGEST];
} *shared;
static char *private_bytes;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* The cores that the program may use, read before it pins itself: children have their parent's one. */
static cpu_set_t allowed;

static void pin(int rank) {
    cpu_set_t mine;
    int nth = rank % CPU_COUNT(&allowed);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && nth-- == 0) {
            CPU_ZERO(&mine);
            CPU_SET(core, &mine);
            sched_setaffinity(0, sizeof mine, &mine);
        }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, n, sizeof *values, ascending);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static int swap_if(word *w, uint64_t expected, uint64_t new, memory_order order) {
    return atomic_compare_exchange_strong_explicit(w, &expected, new, order, memory_order_relaxed);
}

static void pause_core(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

static volatile uint64_t sink;

#define LOOP(name, body)                                              \
    __attribute__((noinline)) static void name(uint64_t n) {          \
        uint64_t sum = 0;                                             \
        for (uint64_t i = 0; i < n; i++) { body; }                    \
        sink = sum;                                                   \
    }
LOOP(cas_store, while (!swap_if(&shared->lock, 0, 1, memory_order_acquire)) pause_core();
     atomic_store_explicit(&shared->lock, 0, memory_order_release))
LOOP(cas_cas, while (!swap_if(&shared->lock, 0, 1, memory_order_acquire)) pause_core();
     swap_if(&shared->lock, 1, 0, memory_order_release))
LOOP(cas_add, while (!swap_if(&shared->lock, 0, 1, memory_order_acquire)) pause_core();
     atomic_fetch_sub(&shared->lock, 1))
LOOP(cas_count, if (i == 0) atomic_store(&shared->other, 0); swap_if(&shared->other, i, i + 1, memory_order_acq_rel))
LOOP(fetch_add, sum += atomic_fetch_add(&shared->other, 1))
LOOP(store, atomic_store_explicit(&shared->other, i, memory_order_release))
#define COPY(name, to, from, size) LOOP(name, memcpy(to, from, size); __asm__ volatile("" ::: "memory"))
COPY(in_64k, shared->bytes, private_bytes, 64 << 10)
COPY(out_64k, private_bytes, shared->bytes, 64 << 10)
COPY(in_1m, shared->bytes, private_bytes, 1 << 20)
COPY(out_1m, private_bytes, shared->bytes, 1 << 20)
COPY(in_4m, shared->bytes, private_bytes, 4 << 20)
COPY(out_4m, private_bytes, shared->bytes, 4 << 20)

static double timed(void (*loop)(uint64_t), uint64_t n) {
    double start = now();
    loop(n);
    return (now() - start) / n;
}

static void loops(void) {
    static const struct { const char *name; void (*run)(uint64_t); double bytes; } all[LOOPS] = {
        {"lock: CAS + store", cas_store, 0}, {"lock: CAS + CAS", cas_cas, 0}, {"lock: CAS + fetch-add", cas_add, 0},
        {"CAS", cas_count, 0}, {"fetch-add", fetch_add, 0}, {"store", store, 0},
        {"memcpy to shared, 64 KiB", in_64k, 64 << 10}, {"memcpy from shared, 64 KiB", out_64k, 64 << 10},
        {"memcpy to shared, 1 MiB", in_1m, 1 << 20}, {"memcpy from shared, 1 MiB", out_1m, 1 << 20},
        {"memcpy to shared, 4 MiB", in_4m, 4 << 20}, {"memcpy from shared, 4 MiB", out_4m, 4 << 20},
    };
    uint64_t sizes[LOOPS];
    double runs[LOOPS][RUNS];
    for (int l = 0; l < LOOPS; l++)
        for (sizes[l] = 1; timed(all[l].run, sizes[l]) * sizes[l] < 250e3; sizes[l] *= 2);
    for (int run = 0; run < RUNS; run++) {
        double batches[LOOPS][BATCHES];
        for (int b = 0; b < BATCHES; b++)
            for (int l = 0; l < LOOPS; l++) batches[l][b] = timed(all[l].run, sizes[l]);
        for (int l = 0; l < LOOPS; l++) runs[l][run] = median(batches[l], BATCHES);
    }
    for (int l = 0; l < LOOPS; l++) {
        double nanos = median(runs[l], RUNS);
        if (all[l].bytes > 0) printf("%-40s %8.1f GB/s\n", all[l].name, all[l].bytes / nanos);
        else printf("%-40s %8.1f ns\n", all[l].name, nanos);
    }
}

/* Compare-and-swap, a hundred attempts between two yields. */
static uint64_t spin(int rank) {
    (void)rank;
    uint64_t acquired = 0;
    for (; !atomic_load_explicit(&shared->over, memory_order_relaxed); acquired++) {
        for (int attempts = 1; !swap_if(&shared->lock, 0, 1, memory_order_acquire); attempts++) {
            if (attempts % 100 == 0) sched_yield();
            else pause_core();
        }
        atomic_store_explicit(&shared->lock, 0, memory_order_release);
    }
    return acquired;
}

/* First come, first served. */
static uint64_t ticket(int rank) {
    (void)rank;
    uint64_t acquired = 0;
    for (; !atomic_load_explicit(&shared->over, memory_order_relaxed); acquired++) {
        uint64_t mine = atomic_fetch_add(&shared->next, 1);
        for (int looks = 1; atomic_load_explicit(&shared->serving, memory_order_acquire) != mine; looks++) {
            if (looks % 100 == 0) sched_yield();
            else pause_core();
        }
        atomic_store_explicit(&shared->serving, mine + 1, memory_order_release);
    }
    return acquired;
}

static void futex_wait(_Atomic uint32_t *at, uint32_t value) {
    syscall(SYS_futex, at, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at) {
    syscall(SYS_futex, at, FUTEX_WAKE, 1, NULL, NULL, 0);
}

enum { GRANTED, WAITING, ASLEEP };

/* Waits until a node is granted: polls `looks` times, then sleeps, or yields after every `looks` polls. */
static void until_granted(struct node *mine, int looks, int yields) {
    for (;;) {
        for (int look = 0; look < looks; look++) {
            if (atomic_load_explicit(&mine->state, memory_order_acquire) == GRANTED) return;
            pause_core();
        }
        if (yields) {
            sched_yield();
            continue;
        }
        uint32_t waiting = WAITING;
        if (!atomic_compare_exchange_strong(&mine->state, &waiting, ASLEEP) && waiting == GRANTED) return;
        futex_wait(&mine->state, ASLEEP);
    }
}

/* Mellor-Crummey and Scott 1991: one exchange to queue, one store to hand over. */
static uint64_t mcs(int rank, int looks, int yields) {
    struct node *mine = &shared->nodes[rank];
    uint64_t acquired = 0;
    for (; !atomic_load_explicit(&shared->over, memory_order_relaxed); acquired++) {
        atomic_store_explicit(&mine->next, NULL, memory_order_relaxed);
        atomic_store_explicit(&mine->state, WAITING, memory_order_relaxed);
        struct node *before = atomic_exchange_explicit(&shared->tail, mine, memory_order_acq_rel);
        if (before != NULL) {
            atomic_store_explicit(&before->next, mine, memory_order_release);
            until_granted(mine, looks, yields);
        }
        struct node *next = atomic_load_explicit(&mine->next, memory_order_acquire);
        if (next == NULL) {
            struct node *last = mine;
            if (atomic_compare_exchange_strong(&shared->tail, &last, NULL)) continue;
            for (int look = 1; (next = atomic_load_explicit(&mine->next, memory_order_acquire)) == NULL; look++) {
                if (look % 100 == 0) sched_yield();
                else pause_core();
            }
        }
        if (yields) atomic_store_explicit(&next->state, GRANTED, memory_order_release);
        else if (atomic_exchange(&next->state, GRANTED) == ASLEEP) futex_wake(&next->state);
    }
    return acquired;
}

static uint64_t mcs_futex(int rank) { return mcs(rank, 2000, 0); }
static uint64_t mcs_futex_soon(int rank) { return mcs(rank, 100, 0); }
static uint64_t mcs_yield(int rank) { return mcs(rank, 100, 1); }
static uint64_t mcs_yield_soon(int rank) { return mcs(rank, 10, 1); }

static uint64_t mutex(int rank) {
    (void)rank;
    uint64_t acquired = 0;
    for (; !atomic_load_explicit(&shared->over, memory_order_relaxed); acquired++) {
        pthread_mutex_lock(&shared->mutex);
        pthread_mutex_unlock(&shared->mutex);
    }
    return acquired;
}

/* The time until a woken sleeper runs on another core: the cost of a lock whose waiters sleep. */
static void wake(void) {
    double runs[RUNS];
    for (int run = 0; run < RUNS; run++) {
        enum { WAKES = 50 };
        double wakes[WAKES];
        atomic_store(&shared->bell, 0);
        atomic_store(&shared->pong, 0);
        if (fork() == 0) {
            pin(1);
            for (uint32_t i = 1; i <= WAKES; i++) {
                while (atomic_load(&shared->bell) < i) futex_wait(&shared->bell, i - 1);
                atomic_store_explicit(&shared->pong, i, memory_order_release);
            }
            _exit(0);
        }
        for (uint32_t i = 1; i <= WAKES; i++) {
            usleep(2000);
            double start = now();
            atomic_store(&shared->bell, i);
            futex_wake(&shared->bell);
            while (atomic_load_explicit(&shared->pong, memory_order_acquire) < i) pause_core();
            wakes[i - 1] = now() - start;
        }
        runs[run] = median(wakes, WAKES);
        wait(NULL);
    }
    printf("%-40s %8.1f ns\n", "futex wake, sleeper on the other core", median(runs, RUNS));
}

/* All of `ranks` processes acquire for 250 ms; sets acquisitions a second and the smallest share over the largest. */
static void contend(uint64_t (*acquire)(int), int ranks, double *rate, double *share) {
    atomic_store(&shared->ready, 0);
    atomic_store(&shared->begun, 0);
    atomic_store(&shared->over, 0);
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) {
            pin(rank);
            atomic_fetch_add(&shared->ready, 1);
            while (!atomic_load(&shared->begun)) sched_yield();
            shared->counts[rank] = acquire(rank);
            _exit(0);
        }
    while (atomic_load(&shared->ready) < (uint64_t)ranks) sched_yield();
    double start = now();
    atomic_store(&shared->begun, 1);
    usleep(250000);
    atomic_store(&shared->over, 1);
    double seconds = (now() - start) / 1e9;
    while (wait(NULL) > 0);
    double sum = 0, min = 1e18, max = 1;
    for (int rank = 0; rank < ranks; rank++) {
        double count = shared->counts[rank];
        sum += count;
        min = count < min ? count : min;
        max = count > max ? count : max;
    }
    *rate = sum / seconds;
    *share = min / max;
}

static void contests(const char *name, uint64_t (*acquire)(int)) {
    for (int ranks = 2; ranks <= MOST; ranks *= 2) {
        double rates[RUNS], shares[RUNS];
        for (int run = 0; run < RUNS; run++) contend(acquire, ranks, &rates[run], &shares[run]);
        printf("%-32s %d ranks %8.3f M/s, share %.3f\n", name, ranks, median(rates, RUNS) / 1e6, median(shares, RUNS));
    }
}

static void answer(word *to, word *from, int first) {
    for (uint64_t i = 1; i <= ROUND_TRIPS; i++) {
        if (first) atomic_store_explicit(to, i, memory_order_release);
        for (int looks = 1; atomic_load_explicit(from, memory_order_acquire) < i; looks++) {
            if (looks % 1000 == 0) sched_yield();
            else pause_core();
        }
        if (!first) atomic_store_explicit(to, i, memory_order_release);
    }
}

static void ping_pong(void) {
    double runs[RUNS];
    for (int run = 0; run < RUNS; run++) {
        atomic_store(&shared->ping, 0);
        atomic_store(&shared->pong, 0);
        if (fork() == 0) {
            pin(1);
            answer(&shared->pong, &shared->ping, 0);
            _exit(0);
        }
        usleep(10000);
        double start = now();
        answer(&shared->ping, &shared->pong, 1);
        runs[run] = (now() - start) / (2 * ROUND_TRIPS);
        wait(NULL);
    }
    printf("%-40s %8.1f ns\n", "store, seen by the other core", median(runs, RUNS));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    private_bytes = malloc(LARGEST);
    if (shared == MAP_FAILED || private_bytes == NULL) {
        perror("memory");
        return 1;
    }
    memset(private_bytes, 1, LARGEST);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        perror("cores");
        return 1;
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &attributes);
    pin(0);
    loops();
    ping_pong();
    wake();
    contests("lock: CAS, spin and yield", spin);
    contests("lock: ticket, spin and yield", ticket);
    contests("lock: MCS, spin 2000, futex", mcs_futex);
    contests("lock: MCS, spin 100, futex", mcs_futex_soon);
    contests("lock: MCS, spin 100, yield", mcs_yield);
    contests("lock: MCS, spin 10, yield", mcs_yield_soon);
    contests("lock: shared pthread mutex", mutex);
    return 0;
}
