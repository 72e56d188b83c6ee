/* The bare loops that the fabric is measured against: the same verbs calls on the same kind of connection (RC, one
 * completion queue with a channel, a shared receive queue, signalled requests, 16 completions a look), and nothing else.
 *
 *   loops ROUNDS      prints a line each: operation, bytes, median nanoseconds
 *
 * write, read, compare-swap, fetch-add: from posting to the completion, seen by polling; writes of 8 bytes are inline, larger
 * ones and reads go from and into registered memory. send: half a round trip of two threads. */
#include <infiniband/verbs.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { DEPTH = 128, RECEIVES = 1024, BATCH = 16, SLOT = 64, WARM_UP = 200, LARGEST = 256 << 10 };

static void check(int good, const char *what) {
  if (!good) {
    perror(what);
    exit(1);
  }
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* One of two ends, each with queues and memory of its own. */
struct end {
  struct ibv_pd *domain;
  struct ibv_cq *completions;
  struct ibv_srq *receives;
  struct ibv_qp *pair;
  struct ibv_mr *region;
  char *memory; /* the cell at 0, the target word at 64, receive slots from 4096, behind them LARGEST bytes to move */
};

enum { BULK = 4096 + RECEIVES * SLOT };

static struct ibv_context *context;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;
static struct end ends[2];
static int rounds;

static void open_device(void) {
  int count;
  struct ibv_device **list = ibv_get_device_list(&count);
  check(list && count > 0, "no RDMA device");
  context = ibv_open_device(list[0]);
  check(context != NULL, "ibv_open_device");
  check(!ibv_query_port(context, 1, &port), "ibv_query_port");
  for (gid_index = 0; gid_index < port.gid_tbl_len; gid_index++) { /* RoCE v2 over IPv4 */
    struct ibv_gid_entry entry;
    if (!ibv_query_gid_ex(context, 1, gid_index, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        entry.gid.raw[10] == 0xff && entry.gid.raw[0] == 0) {
      gid = entry.gid;
      return;
    }
  }
  check(0, "no GID of RoCE v2 over IPv4");
}

static void post_receive(struct end *end, uint64_t slot) {
  struct ibv_sge piece = {(uintptr_t)end->memory + 4096 + slot * SLOT, SLOT, end->region->lkey};
  struct ibv_recv_wr request = {.wr_id = 1ull << 63 | slot, .sg_list = &piece, .num_sge = 1}, *bad;
  check(!ibv_post_srq_recv(end->receives, &request, &bad), "ibv_post_srq_recv");
}

static void make(struct end *end) {
  size_t len = BULK + LARGEST;
  end->memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  check(end->memory != MAP_FAILED, "mmap");
  end->domain = ibv_alloc_pd(context);
  check(end->domain != NULL, "ibv_alloc_pd");
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  end->region = ibv_reg_mr(end->domain, end->memory, len, access);
  check(end->region != NULL, "ibv_reg_mr");
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  end->completions = ibv_create_cq(context, 2 * DEPTH + RECEIVES, NULL, channel, 0);
  check(channel && end->completions, "ibv_create_cq");
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  end->receives = ibv_create_srq(end->domain, &srq);
  check(end->receives != NULL, "ibv_create_srq");
  struct ibv_qp_init_attr qp = {
      .send_cq = end->completions, .recv_cq = end->completions, .srq = end->receives, .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = DEPTH, .max_send_sge = 1, .max_inline_data = SLOT}};
  end->pair = ibv_create_qp(end->domain, &qp);
  check(end->pair != NULL, "ibv_create_qp with inline data");
  for (int slot = 0; slot < RECEIVES; slot++) post_receive(end, slot);
}

static void join(struct end *end, struct end *other) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
  check(!ibv_modify_qp(end->pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "init");
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu,
      .dest_qp_num = other->pair->qp_num, .max_dest_rd_atomic = 128, .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  check(!ibv_modify_qp(end->pair, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "ready to receive");
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 15, .retry_cnt = 7, .rnr_retry = 7,
      .max_rd_atomic = 128};
  check(!ibv_modify_qp(end->pair, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "ready to send");
}

static void post(struct end *end, struct end *other, enum ibv_wr_opcode opcode, uint32_t size) {
  int is_word = size == 8;
  struct ibv_sge piece = {(uintptr_t)end->memory + (is_word ? 0 : BULK), size, end->region->lkey};
  uint64_t target = (uintptr_t)other->memory + (is_word ? 64 : BULK);
  struct ibv_send_wr request = {.wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = opcode,
      .send_flags = IBV_SEND_SIGNALED}, *bad;
  switch (opcode) {
  case IBV_WR_ATOMIC_CMP_AND_SWP:
  case IBV_WR_ATOMIC_FETCH_AND_ADD:
    request.wr.atomic.remote_addr = target;
    request.wr.atomic.rkey = other->region->rkey;
    break;
  case IBV_WR_SEND_WITH_IMM:
    request.imm_data = htonl(4);
    request.send_flags |= IBV_SEND_INLINE;
    break;
  case IBV_WR_RDMA_WRITE:
    if (is_word) request.send_flags |= IBV_SEND_INLINE;
    /* fall through */
  default:
    request.wr.rdma.remote_addr = target;
    request.wr.rdma.rkey = other->region->rkey;
  }
  check(!ibv_post_send(end->pair, &request, &bad), "ibv_post_send");
}

/* Takes in what is there; counts sends that completed and messages that came. */
static void look(struct end *end, int *sent, int *came) {
  struct ibv_wc batch[BATCH];
  int count = ibv_poll_cq(end->completions, BATCH, batch);
  for (int at = 0; at < count; at++) {
    check(batch[at].status == IBV_WC_SUCCESS, ibv_wc_status_str(batch[at].status));
    if (batch[at].wr_id >> 63) {
      post_receive(end, batch[at].wr_id & 0xffff);
      ++*came;
    } else
      ++*sent;
  }
}

static int by_value(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static void report(const char *name, uint32_t size, uint64_t *times, double divisor) {
  qsort(times, rounds, sizeof *times, by_value);
  printf("%s %u %.0f\n", name, size, times[rounds / 2] / divisor);
}

static void one_sided(const char *name, enum ibv_wr_opcode opcode, uint32_t size) {
  uint64_t *times = malloc(rounds * sizeof *times);
  int came = 0;
  for (int round = -WARM_UP; round < rounds; round++) {
    uint64_t began = now();
    int sent = 0;
    post(&ends[0], &ends[1], opcode, size);
    while (!sent) look(&ends[0], &sent, &came);
    if (round >= 0) times[round] = now() - began;
  }
  report(name, size, times, 1);
  free(times);
}

static void *answer(void *unused) {
  int sent = 0, came = 0;
  for (int round = -WARM_UP; round < rounds; round++) {
    while (came < round + WARM_UP + 1) look(&ends[1], &sent, &came);
    post(&ends[1], &ends[0], IBV_WR_SEND_WITH_IMM, 8);
  }
  return unused;
}

static void send_and_answer(void) {
  uint64_t *times = malloc(rounds * sizeof *times);
  pthread_t other;
  check(!pthread_create(&other, NULL, answer, NULL), "pthread_create");
  int sent = 0, came = 0;
  for (int round = -WARM_UP; round < rounds; round++) {
    uint64_t began = now();
    post(&ends[0], &ends[1], IBV_WR_SEND_WITH_IMM, 8);
    while (came < round + WARM_UP + 1) look(&ends[0], &sent, &came);
    if (round >= 0) times[round] = now() - began;
  }
  pthread_join(other, NULL);
  report("send", 8, times, 2);
  free(times);
}

int main(int argc, char **argv) {
  rounds = argc > 1 ? atoi(argv[1]) : 2000;
  open_device();
  make(&ends[0]);
  make(&ends[1]);
  join(&ends[0], &ends[1]);
  join(&ends[1], &ends[0]);
  for (uint32_t size = 8; size <= LARGEST; size = size == 8 ? 512 : size * 8) {
    one_sided("write", IBV_WR_RDMA_WRITE, size);
    one_sided("read", IBV_WR_RDMA_READ, size);
  }
  one_sided("compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, 8);
  one_sided("fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  send_and_answer();
  return 0;
}
