/* The endpoints of the bare loops: the same kind of connections as the fabric's (RC, one completion queue with a channel and
 * one shared receive queue per endpoint, 128 requests deep, all signalled), and the two calls on the data path: post a
 * request, poll up to 16 completions. */
#include <infiniband/verbs.h>
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEPTH = 128, RECEIVES = 1024, BATCH = 16, SLOT = 64, RANKS = 16, LARGEST = 256 << 10 };

/* An endpoint's registered memory: words from 0, receive slots, data, and staging buffers for data outside of it. */
enum { CELLS = 0, WORDS = 2048, SLOTS = 4096, BULK = SLOTS + RECEIVES * SLOT, STAGING = BULK + LARGEST, MEMORY = STAGING + LARGEST };

struct end {
  struct ibv_pd *domain;
  struct ibv_cq *completions;
  struct ibv_srq *receives;
  struct ibv_qp *pairs[RANKS]; /* to each endpoint */
  struct ibv_mr *region;
  char *memory;
  int under_way; /* requests that have not completed */
  int came;      /* messages and doorbells, so far */
  char message[SLOT];
};

static struct ibv_context *context;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;

static void check(int good, const char *what) {
  if (!good) {
    perror(what);
    exit(1);
  }
}

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
  struct ibv_sge piece = {(uintptr_t)end->memory + SLOTS + slot * SLOT, SLOT, end->region->lkey};
  struct ibv_recv_wr request = {.wr_id = 1ull << 63 | slot, .sg_list = &piece, .num_sge = 1}, *bad;
  check(!ibv_post_srq_recv(end->receives, &request, &bad), "ibv_post_srq_recv");
}

static void make(struct end *end, int pairs) {
  end->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  check(end->memory != MAP_FAILED, "mmap");
  end->domain = ibv_alloc_pd(context);
  check(end->domain != NULL, "ibv_alloc_pd");
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  end->region = ibv_reg_mr(end->domain, end->memory, MEMORY, access);
  check(end->region != NULL, "ibv_reg_mr");
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  end->completions = ibv_create_cq(context, RECEIVES + pairs * DEPTH, NULL, channel, 0);
  check(channel && end->completions, "ibv_create_cq");
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  end->receives = ibv_create_srq(end->domain, &srq);
  check(end->receives != NULL, "ibv_create_srq");
  struct ibv_qp_init_attr qp = {
      .send_cq = end->completions, .recv_cq = end->completions, .srq = end->receives, .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = DEPTH, .max_send_sge = 1, .max_inline_data = SLOT}};
  for (int at = 0; at < pairs; at++) {
    end->pairs[at] = ibv_create_qp(end->domain, &qp);
    check(end->pairs[at] != NULL, "ibv_create_qp with inline data");
  }
  for (int slot = 0; slot < RECEIVES; slot++) post_receive(end, slot);
}

static void join(struct ibv_qp *pair, struct ibv_qp *other) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
      .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
  check(!ibv_modify_qp(pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "init");
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu,
      .dest_qp_num = other->qp_num, .max_dest_rd_atomic = 128, .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
  check(!ibv_modify_qp(pair, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "ready to receive");
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 15, .retry_cnt = 7, .rnr_retry = 7,
      .max_rd_atomic = 128};
  check(!ibv_modify_qp(pair, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "ready to send");
}

/* A request with one piece of local memory. */
static struct ibv_send_wr request_of(enum ibv_wr_opcode opcode, struct ibv_sge *piece) {
  return (struct ibv_send_wr){.wr_id = 1, .sg_list = piece, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
}

static struct ibv_sge piece_of(struct end *end, uint64_t at, uint32_t size) {
  return (struct ibv_sge){(uintptr_t)end->memory + at, size, end->region->lkey};
}

static void post(struct end *end, struct ibv_qp *pair, struct ibv_send_wr *request) {
  struct ibv_send_wr *bad;
  end->under_way++;
  check(!ibv_post_send(pair, request, &bad), "ibv_post_send");
}

/* Polls completions. A message is copied out and its receive reposted immediately, so a sender is held back by the card
 * only when 1024 messages were not polled. */
static void look(struct end *end) {
  struct ibv_wc batch[BATCH];
  int count = ibv_poll_cq(end->completions, BATCH, batch);
  for (int at = 0; at < count; at++) {
    check(batch[at].status == IBV_WC_SUCCESS, ibv_wc_status_str(batch[at].status));
    if (batch[at].wr_id >> 63) {
      uint64_t slot = batch[at].wr_id & 0xffff;
      if (batch[at].opcode == IBV_WC_RECV) memcpy(end->message, end->memory + SLOTS + slot * SLOT, batch[at].byte_len);
      post_receive(end, slot);
      end->came++;
    } else
      end->under_way--;
  }
}

/* Waits until every posted request has completed. */
static void complete(struct end *end) {
  while (end->under_way) look(end);
}
