/* The bare loops that the library is compared with: the same verbs calls on the same kind of connections (ends.h), and
 * nothing else.
 *
 *   loops ROUNDS      prints a line each: what, a tab, median nanoseconds
 *
 * Both endpoints are in one thread, which polls the endpoint that waits, so no scheduler is measured. Data in registered
 * buffers of the loop is not copied; data in user memory is copied into a staging buffer, 16 KiB at a time, or sent inline
 * up to 64 bytes. */
#include <time.h>

#include "ends.h"

enum { WARM_UP = 100, STAGE = 16 << 10, AHEAD = 4, MANY = 64 };

static struct end ends[RANKS];
static struct end *const origin = &ends[0], *const target = &ends[1];
static int rounds;
static uint64_t *times;
static char user[LARGEST], got[LARGEST]; /* not registered */

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void write_to(struct end *to, struct ibv_qp *pair, uint64_t at, struct ibv_sge piece) {
  struct ibv_send_wr request = request_of(IBV_WR_RDMA_WRITE, &piece);
  if (piece.length <= SLOT) request.send_flags |= IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = (uintptr_t)to->memory + at;
  request.wr.rdma.rkey = to->region->rkey;
  post(origin, pair, &request);
}

static void read_from(struct end *from, struct ibv_qp *pair, uint64_t at, struct ibv_sge piece) {
  struct ibv_send_wr request = request_of(IBV_WR_RDMA_READ, &piece);
  request.wr.rdma.remote_addr = (uintptr_t)from->memory + at;
  request.wr.rdma.rkey = from->region->rkey;
  post(origin, pair, &request);
}

/* A change of the target's word, with the old value into a cell. */
static void change(enum ibv_wr_opcode opcode, int cell, int word, uint64_t compare_add, uint64_t swap) {
  struct ibv_sge piece = piece_of(origin, CELLS + 8 * cell, 8);
  struct ibv_send_wr request = request_of(opcode, &piece);
  request.wr.atomic.remote_addr = (uintptr_t)target->memory + WORDS + 8 * word;
  request.wr.atomic.rkey = target->region->rkey;
  request.wr.atomic.compare_add = compare_add;
  request.wr.atomic.swap = swap;
  post(origin, origin->pairs[1], &request);
}

static volatile uint64_t *word_of(struct end *end, uint64_t at) { return (volatile uint64_t *)(end->memory + at); }

/* Registered memory. */

static void rdma_write(uint32_t size) {
  write_to(target, origin->pairs[1], BULK, piece_of(origin, size == 8 ? CELLS : BULK, size));
  complete(origin);
}

static void rdma_read(uint32_t size) {
  read_from(target, origin->pairs[1], BULK, piece_of(origin, size == 8 ? CELLS : BULK, size));
  complete(origin);
}

static void compare_swap(uint32_t size) {
  (void)size;
  change(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0, 0, 0);
  complete(origin);
}

static void fetch_add(uint32_t size) {
  (void)size;
  change(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 1, 0);
  complete(origin);
}

/* Messages: one there, one back. */
static void send_message(struct end *from, struct end *to, uint32_t size) {
  struct ibv_sge piece = {(uintptr_t)user, size, 0};
  struct ibv_send_wr request = request_of(IBV_WR_SEND_WITH_IMM, &piece);
  request.imm_data = htonl(4);
  request.send_flags |= IBV_SEND_INLINE | IBV_SEND_SOLICITED;
  int came = to->came;
  post(from, from->pairs[to - ends], &request);
  while (to->came == came) look(to);
}

static void send_and_answer(uint32_t size) {
  send_message(origin, target, size);
  send_message(target, origin, size);
}

/* Data in user memory. */

static void put(uint32_t size) {
  if (size <= SLOT) {
    write_to(target, origin->pairs[1], BULK, (struct ibv_sge){(uintptr_t)user, size, 0});
    return;
  }
  for (uint32_t at = 0; at < size; at += STAGE) {
    uint32_t piece = size - at < STAGE ? size - at : STAGE;
    memcpy(origin->memory + STAGING + at, user + at, piece);
    write_to(target, origin->pairs[1], BULK + at, piece_of(origin, STAGING + at, piece));
  }
}

/* A read behind the writes: when it has completed, they are in memory. */
static void prove(struct end *to, struct ibv_qp *pair) { read_from(to, pair, CELLS, piece_of(origin, CELLS, 8)); }

static void put_and_flush(uint32_t size) {
  put(size);
  prove(target, origin->pairs[1]);
  complete(origin);
}

static void many_puts_and_flush(uint32_t size) {
  for (int at = 0; at < MANY; at++)
    write_to(target, origin->pairs[1], BULK + at * size, (struct ibv_sge){(uintptr_t)user + at * size, size, 0});
  prove(target, origin->pairs[1]);
  complete(origin);
}

static void get(uint32_t size) {
  uint32_t pieces = (size + STAGE - 1) / STAGE;
  for (uint32_t at = 0; at < size; at += STAGE)
    read_from(target, origin->pairs[1], BULK + at, piece_of(origin, STAGING + at, size - at < STAGE ? size - at : STAGE));
  for (uint32_t done = 0; done < pieces; done++) { /* they complete in order */
    while (origin->under_way > (int)(pieces - 1 - done)) look(origin);
    uint32_t at = done * STAGE;
    memcpy(got + at, origin->memory + STAGING + at, size - at < STAGE ? size - at : STAGE);
  }
}

static void put_and_signal(uint32_t size) {
  static uint64_t number;
  number++;
  put(size);
  struct ibv_sge piece = {(uintptr_t)&number, 8, 0};
  struct ibv_send_wr request = request_of(IBV_WR_RDMA_WRITE_WITH_IMM, &piece);
  request.send_flags |= IBV_SEND_INLINE | IBV_SEND_SOLICITED;
  request.wr.rdma.remote_addr = (uintptr_t)target->memory + WORDS + 1024;
  request.wr.rdma.rkey = target->region->rkey;
  post(origin, origin->pairs[1], &request);
  while (*word_of(target, WORDS + 1024) != number) look(target);
  prove(target, origin->pairs[1]);
  complete(origin);
}

/* Sums, and operations that a card lacks: a read, then a compare-and-swap that expects the value read. */

static void sums(uint32_t count) {
  for (uint32_t at = 0; at < count; at++) change(IBV_WR_ATOMIC_FETCH_AND_ADD, at, at, 1, 0);
  complete(origin);
}

static void maximum(uint32_t size) {
  static uint64_t operand = 1ull << 40;
  read_from(target, origin->pairs[1], WORDS + 8 * 100, piece_of(origin, CELLS, size));
  complete(origin);
  change(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 100, *word_of(origin, CELLS), ++operand);
  complete(origin);
}

/* A test-and-set lock around a put: acquired by a compare-and-swap, released by a write once the put has completed. */
static void locked_put(uint32_t size) {
  static uint64_t zero;
  struct ibv_sge none = {(uintptr_t)&zero, 8, 0};
  change(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 101, 0, 1);
  complete(origin);
  put(size);
  prove(target, origin->pairs[1]);
  complete(origin);
  write_to(target, origin->pairs[1], WORDS + 8 * 101, none);
}

/* Uncontended locks: the minimum of their designs. An acquire is waited for, a release is posted. */

static void locked_by_swaps(uint32_t size) { /* test-and-set; a queue, whose word names the last who came */
  (void)size;
  change(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 102, 0, 1);
  complete(origin);
  change(IBV_WR_ATOMIC_CMP_AND_SWP, 1, 102, 1, 0);
}

static void locked_by_sums(uint32_t size) { /* tickets; a queue by fetch-add */
  (void)size;
  change(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 103, 1, 0);
  complete(origin);
  change(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 103, -1, 0);
}

/* Every other endpoint. */
static void put_to_all(uint32_t size) {
  for (int to = 1; to < RANKS; to++)
    write_to(&ends[to], origin->pairs[to], BULK, (struct ibv_sge){(uintptr_t)user, size, 0});
  for (int to = 1; to < RANKS; to++) prove(&ends[to], origin->pairs[to]);
  complete(origin);
}

static int by_value(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static void measure(const char *name, void (*once)(uint32_t), uint32_t size) {
  for (int round = -WARM_UP; round < rounds; round++) {
    uint64_t began = now();
    once(size);
    if (round >= 0) times[round] = now() - began;
  }
  complete(origin);
  complete(target);
  qsort(times, rounds, sizeof *times, by_value);
  printf("%s %u\t%.0f\n", name, size, (double)times[rounds / 2]);
}

int main(int argc, char **argv) {
  rounds = argc > 1 ? atoi(argv[1]) : 2000;
  times = malloc(rounds * sizeof *times);
  open_device();
  for (int rank = 0; rank < RANKS; rank++) make(&ends[rank], rank ? 1 : RANKS);
  for (int rank = 1; rank < RANKS; rank++) {
    join(ends[rank].pairs[0], origin->pairs[rank]);
    join(origin->pairs[rank], ends[rank].pairs[0]);
  }
  for (uint32_t size = 8; size <= LARGEST; size = size == 8 ? 512 : size * 8) {
    measure("write", rdma_write, size);
    measure("read", rdma_read, size);
  }
  measure("compare-swap", compare_swap, 8);
  measure("fetch-add", fetch_add, 8);
  measure("send and answer", send_and_answer, 8);
  for (uint32_t size = 8; size <= 64 << 10; size = size == 8 ? 512 : size * (size == 512 ? 8 : 4)) {
    measure("put, flush", put_and_flush, size);
    measure("get", get, size);
  }
  measure("64 puts, flush", many_puts_and_flush, 8);
  measure("put, signal, flush", put_and_signal, 512);
  measure("fetch_and_op sum", fetch_add, 8);
  measure("compare_and_swap", compare_swap, 8);
  measure("accumulate sums, flush", sums, 1);
  measure("accumulate sums, flush", sums, 64);
  measure("accumulate max, flush", maximum, 8);
  measure("lock, put, unlock", locked_put, 8);
  measure("lock, unlock: test-and-set", locked_by_swaps, 8);
  measure("lock, unlock: mcs", locked_by_swaps, 8);
  measure("lock, unlock: ticket", locked_by_sums, 8);
  measure("lock, unlock: fetch-add-queue", locked_by_sums, 8);
  measure("put to 15, flush all", put_to_all, 8);
  return 0;
}
