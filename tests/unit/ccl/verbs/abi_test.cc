// Our declarations of libibverbs' interface beside those of its headers, where they are installed.
#include <gtest/gtest.h>

#include "ccl/tap/extended_abi.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define C4_HAVE_VERBS_HEADER 1
#endif

namespace c4::verbs {
namespace {

#ifdef C4_HAVE_VERBS_HEADER

#define SAME_FIELD(ours, our_field, theirs, their_field)                                  \
  EXPECT_EQ(offsetof(abi::ours, our_field), offsetof(struct theirs, their_field))         \
      << #theirs "." #their_field;                                                        \
  EXPECT_EQ(sizeof(abi::ours::our_field), sizeof(((struct theirs*)nullptr)->their_field)) \
      << #theirs "." #their_field
#define SAME_SIZE(ours, theirs) EXPECT_EQ(sizeof(abi::ours), sizeof(struct theirs))

TEST(VerbsAbi, ObjectsAreLaidOutAsInTheHeaders) {
  SAME_SIZE(Device, ibv_device);
  SAME_FIELD(Device, node_type, ibv_device, node_type);
  SAME_FIELD(Device, transport_type, ibv_device, transport_type);
  SAME_FIELD(Device, name, ibv_device, name);
  SAME_FIELD(Device, ibdev_path, ibv_device, ibdev_path);
  SAME_SIZE(Context, ibv_context);
  SAME_SIZE(Operations, ibv_context_ops);
  SAME_FIELD(Context, async_fd, ibv_context, async_fd);
  SAME_FIELD(Operations, poll_completions, ibv_context_ops, poll_cq);
  SAME_FIELD(Operations, request_notification, ibv_context_ops, req_notify_cq);
  SAME_FIELD(Operations, post_send, ibv_context_ops, post_send);
  SAME_FIELD(Operations, post_receive, ibv_context_ops, post_recv);
  SAME_SIZE(ProtectionDomain, ibv_pd);
  SAME_SIZE(MemoryRegion, ibv_mr);
  SAME_FIELD(MemoryRegion, local_key, ibv_mr, lkey);
  SAME_FIELD(MemoryRegion, remote_key, ibv_mr, rkey);
  SAME_SIZE(CompletionChannel, ibv_comp_channel);
  SAME_FIELD(CompletionChannel, fd, ibv_comp_channel, fd);
  SAME_SIZE(CompletionQueue, ibv_cq);
  SAME_SIZE(QueuePair, ibv_qp);
  SAME_FIELD(QueuePair, number, ibv_qp, qp_num);
  SAME_FIELD(QueuePair, state, ibv_qp, state);
}

TEST(VerbsAbi, ExtendedOnesAreLaidOutAsInTheHeaders) {
  // At the end of the context that a provider allocates.
  const auto from_end = [](size_t offset, size_t bytes) { return bytes - offset; };
  EXPECT_EQ(from_end(offsetof(abi::ExtendedContext, create_qp), sizeof(abi::ExtendedContext)),
            from_end(offsetof(struct verbs_context, create_qp_ex), sizeof(struct verbs_context)));
  EXPECT_EQ(from_end(offsetof(abi::ExtendedContext, bytes), sizeof(abi::ExtendedContext)),
            from_end(offsetof(struct verbs_context, sz), sizeof(struct verbs_context)));
  EXPECT_EQ(reinterpret_cast<void*>(UINTPTR_MAX), __VERBS_ABI_IS_EXTENDED);
  SAME_FIELD(QpInitExtended, signal_all, ibv_qp_init_attr_ex, sq_sig_all);
  SAME_FIELD(QpInitExtended, mask, ibv_qp_init_attr_ex, comp_mask);
  EXPECT_EQ(static_cast<int>(abi::kInitSendCalls), static_cast<int>(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS));
  SAME_FIELD(ExtendedQueuePair, id, ibv_qp_ex, wr_id);
  SAME_FIELD(ExtendedQueuePair, flags, ibv_qp_ex, wr_flags);
  constexpr size_t kCalls = offsetof(abi::ExtendedQueuePair, calls);
#define SAME_CALL(ours, theirs) \
  EXPECT_EQ(kCalls + offsetof(abi::SendCalls, ours), offsetof(struct ibv_qp_ex, theirs)) << #theirs
  SAME_CALL(compare_and_swap, wr_atomic_cmp_swp);
  SAME_CALL(fetch_and_add, wr_atomic_fetch_add);
  SAME_CALL(bind_window, wr_bind_mw);
  SAME_CALL(invalidate, wr_local_inv);
  SAME_CALL(read, wr_rdma_read);
  SAME_CALL(write, wr_rdma_write);
  SAME_CALL(write_with_immediate, wr_rdma_write_imm);
  SAME_CALL(send, wr_send);
  SAME_CALL(send_with_immediate, wr_send_imm);
  SAME_CALL(send_with_invalidate, wr_send_inv);
  SAME_CALL(send_segmented, wr_send_tso);
  SAME_CALL(set_inline, wr_set_inline_data);
  SAME_CALL(set_inline_list, wr_set_inline_data_list);
  SAME_CALL(set_piece, wr_set_sge);
  SAME_CALL(set_pieces, wr_set_sge_list);
  SAME_CALL(start, wr_start);
  SAME_CALL(complete, wr_complete);
  SAME_CALL(abort, wr_abort);
  SAME_SIZE(DataBuffer, ibv_data_buf);
}

TEST(VerbsAbi, AttributesAreLaidOutAsInTheHeaders) {
  EXPECT_EQ(sizeof(abi::Gid), sizeof(union ibv_gid));
  EXPECT_EQ(alignof(abi::Gid), alignof(union ibv_gid));
  SAME_SIZE(GidEntry, ibv_gid_entry);
  SAME_FIELD(GidEntry, gid_type, ibv_gid_entry, gid_type);
  SAME_SIZE(PortAttributes, ibv_port_attr);
  SAME_FIELD(PortAttributes, active_mtu, ibv_port_attr, active_mtu);
  SAME_FIELD(PortAttributes, gid_table_length, ibv_port_attr, gid_tbl_len);
  SAME_FIELD(PortAttributes, lid, ibv_port_attr, lid);
  SAME_FIELD(PortAttributes, link_layer, ibv_port_attr, link_layer);
  SAME_SIZE(DeviceAttributes, ibv_device_attr);
  SAME_FIELD(DeviceAttributes, vendor_id, ibv_device_attr, vendor_id);
  SAME_FIELD(DeviceAttributes, max_work_requests, ibv_device_attr, max_qp_wr);
  SAME_FIELD(DeviceAttributes, max_completions, ibv_device_attr, max_cqe);
  SAME_FIELD(DeviceAttributes, port_count, ibv_device_attr, phys_port_cnt);
  SAME_SIZE(QpCapacity, ibv_qp_cap);
  SAME_SIZE(QpInit, ibv_qp_init_attr);
  SAME_FIELD(QpInit, capacity, ibv_qp_init_attr, cap);
  SAME_FIELD(QpInit, signal_all, ibv_qp_init_attr, sq_sig_all);
  SAME_SIZE(GlobalRoute, ibv_global_route);
  SAME_FIELD(GlobalRoute, traffic_class, ibv_global_route, traffic_class);
  SAME_SIZE(AddressVector, ibv_ah_attr);
  SAME_FIELD(AddressVector, service_level, ibv_ah_attr, sl);
  SAME_FIELD(AddressVector, is_global, ibv_ah_attr, is_global);
  SAME_FIELD(AddressVector, port_number, ibv_ah_attr, port_num);
  SAME_SIZE(QpAttributes, ibv_qp_attr);
  SAME_FIELD(QpAttributes, path_mtu, ibv_qp_attr, path_mtu);
  SAME_FIELD(QpAttributes, peer_number, ibv_qp_attr, dest_qp_num);
  SAME_FIELD(QpAttributes, access, ibv_qp_attr, qp_access_flags);
  SAME_FIELD(QpAttributes, address, ibv_qp_attr, ah_attr);
  SAME_FIELD(QpAttributes, reads, ibv_qp_attr, max_rd_atomic);
  SAME_FIELD(QpAttributes, port_number, ibv_qp_attr, port_num);
  SAME_FIELD(QpAttributes, timeout, ibv_qp_attr, timeout);
  SAME_FIELD(QpAttributes, retry_count, ibv_qp_attr, retry_cnt);
  SAME_FIELD(QpAttributes, rnr_retry, ibv_qp_attr, rnr_retry);
}

TEST(VerbsAbi, RequestsAreLaidOutAsInTheHeaders) {
  SAME_SIZE(Piece, ibv_sge);
  SAME_SIZE(SendRequest, ibv_send_wr);
  SAME_FIELD(SendRequest, opcode, ibv_send_wr, opcode);
  SAME_FIELD(SendRequest, flags, ibv_send_wr, send_flags);
  SAME_FIELD(SendRequest, immediate, ibv_send_wr, imm_data);
  SAME_FIELD(SendRequest, remote_address, ibv_send_wr, wr.rdma.remote_addr);
  SAME_FIELD(SendRequest, remote_key, ibv_send_wr, wr.rdma.rkey);
  SAME_SIZE(ReceiveRequest, ibv_recv_wr);
  SAME_SIZE(Completion, ibv_wc);
  SAME_FIELD(Completion, bytes, ibv_wc, byte_len);
  SAME_FIELD(Completion, immediate, ibv_wc, imm_data);
  SAME_FIELD(Completion, qp_number, ibv_wc, qp_num);
  SAME_SIZE(AsyncEvent, ibv_async_event);
  SAME_FIELD(AsyncEvent, type, ibv_async_event, event_type);
}

TEST(VerbsAbi, NumbersAreThoseOfTheHeaders) {
  const int pairs[][2] = {
      {abi::kPortActive, IBV_PORT_ACTIVE},
      {abi::kPortDown, IBV_PORT_DOWN},
      {abi::kLinkInfiniBand, IBV_LINK_LAYER_INFINIBAND},
      {abi::kLinkEthernet, IBV_LINK_LAYER_ETHERNET},
      {abi::kGidRoceV1, IBV_GID_TYPE_ROCE_V1},
      {abi::kGidRoceV2, IBV_GID_TYPE_ROCE_V2},
      {abi::kReliableConnection, IBV_QPT_RC},
      {abi::kInit, IBV_QPS_INIT},
      {abi::kReadyToReceive, IBV_QPS_RTR},
      {abi::kReadyToSend, IBV_QPS_RTS},
      {abi::kSendDrained, IBV_QPS_SQD},
      {abi::kError, IBV_QPS_ERR},
      {abi::kMaskState, IBV_QP_STATE},
      {abi::kMaskAccess, IBV_QP_ACCESS_FLAGS},
      {abi::kMaskPkeyIndex, IBV_QP_PKEY_INDEX},
      {abi::kMaskPort, IBV_QP_PORT},
      {abi::kMaskAddress, IBV_QP_AV},
      {abi::kMaskPathMtu, IBV_QP_PATH_MTU},
      {abi::kMaskTimeout, IBV_QP_TIMEOUT},
      {abi::kMaskRetryCount, IBV_QP_RETRY_CNT},
      {abi::kMaskRnrRetry, IBV_QP_RNR_RETRY},
      {abi::kMaskReceivePsn, IBV_QP_RQ_PSN},
      {abi::kMaskReads, IBV_QP_MAX_QP_RD_ATOMIC},
      {abi::kMaskMinRnrTimer, IBV_QP_MIN_RNR_TIMER},
      {abi::kMaskSendPsn, IBV_QP_SQ_PSN},
      {abi::kMaskPeerReads, IBV_QP_MAX_DEST_RD_ATOMIC},
      {abi::kMaskPeerQpNumber, IBV_QP_DEST_QPN},
      {abi::kLocalWrite, IBV_ACCESS_LOCAL_WRITE},
      {abi::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE},
      {abi::kRemoteRead, IBV_ACCESS_REMOTE_READ},
      {abi::kOpWrite, IBV_WR_RDMA_WRITE},
      {abi::kOpWriteWithImmediate, IBV_WR_RDMA_WRITE_WITH_IMM},
      {abi::kOpSend, IBV_WR_SEND},
      {abi::kOpRead, IBV_WR_RDMA_READ},
      {abi::kSignaled, IBV_SEND_SIGNALED},
      {abi::kInline, IBV_SEND_INLINE},
      {abi::kLocalQpError, IBV_WC_LOC_QP_OP_ERR},
      {abi::kLocalProtection, IBV_WC_LOC_PROT_ERR},
      {abi::kFlushed, IBV_WC_WR_FLUSH_ERR},
      {abi::kRemoteInvalidRequest, IBV_WC_REM_INV_REQ_ERR},
      {abi::kRemoteAccess, IBV_WC_REM_ACCESS_ERR},
      {abi::kRetryExceeded, IBV_WC_RETRY_EXC_ERR},
      {abi::kRnrRetryExceeded, IBV_WC_RNR_RETRY_EXC_ERR},
      {abi::kWcReceive, IBV_WC_RECV},
      {abi::kWcReceiveWithImmediate, IBV_WC_RECV_RDMA_WITH_IMM},
      {abi::kEventQpFatal, IBV_EVENT_QP_FATAL},
      {abi::kEventQpRequestError, IBV_EVENT_QP_REQ_ERR},
      {abi::kEventQpAccessError, IBV_EVENT_QP_ACCESS_ERR},
      {abi::kEventDeviceFatal, IBV_EVENT_DEVICE_FATAL},
      {abi::kEventPortActive, IBV_EVENT_PORT_ACTIVE},
      {abi::kEventPortError, IBV_EVENT_PORT_ERR},
      {abi::kEventGidChange, IBV_EVENT_GID_CHANGE},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; ++i) EXPECT_EQ(pairs[i][0], pairs[i][1]) << i;
}

#else

TEST(VerbsAbi, ObjectsAreLaidOutAsInTheHeaders) {
  GTEST_SKIP() << "libibverbs-dev is not installed";
}

#endif

}  // namespace
}  // namespace c4::verbs
