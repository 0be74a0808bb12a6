#include "ccl/transport/verbs/library.h"

#include <dlfcn.h>
#include <type_traits>

namespace c4::verbs {
namespace {

template <typename Function>
bool Find(void* handle, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
  return *function != nullptr;
}

struct OfProcess {
  OfProcess() : opened(OpenLibrary({}, &library)) {}

  Library library;
  Result opened;
};

}  // namespace

Result OpenLibrary(const LibraryFiles& files, Library* library) {
  void* const handle = dlopen(files.ibverbs, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is one a thread
    const char* const why = dlerror();
    return Fail(ncclSystemError, "libibverbs cannot be opened (%s)", why == nullptr ? files.ibverbs : why);
  }
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto* function) {
    if (!Find(handle, symbol, function)) missing = symbol;
  };
  find("ibv_get_device_list", &library->get_device_list);
  find("ibv_free_device_list", &library->free_device_list);
  find("ibv_open_device", &library->open_device);
  find("ibv_close_device", &library->close_device);
  find("ibv_query_device", &library->query_device);
  find("ibv_query_port", &library->query_port);
  find("ibv_query_gid", &library->query_gid);
  find("ibv_fork_init", &library->fork_init);
  find("ibv_get_async_event", &library->get_async_event);
  find("ibv_ack_async_event", &library->ack_async_event);
  find("ibv_alloc_pd", &library->alloc_domain);
  find("ibv_dealloc_pd", &library->dealloc_domain);
  find("ibv_reg_mr", &library->register_region);
  find("ibv_dereg_mr", &library->deregister_region);
  find("ibv_create_comp_channel", &library->create_channel);
  find("ibv_destroy_comp_channel", &library->destroy_channel);
  find("ibv_create_cq", &library->create_queue);
  find("ibv_destroy_cq", &library->destroy_queue);
  find("ibv_get_cq_event", &library->get_queue_event);
  find("ibv_ack_cq_events", &library->ack_queue_events);
  find("ibv_create_qp", &library->create_queue_pair);
  find("ibv_destroy_qp", &library->destroy_queue_pair);
  find("ibv_modify_qp", &library->modify_queue_pair);
  find("ibv_query_qp", &library->query_queue_pair);
  if (missing != nullptr) {
    return Fail(ncclSystemError, "%s has no %s: it is too old, install rdma-core 28 or later", files.ibverbs,
                missing);
  }
  (void)Find(handle, "_ibv_query_gid_ex", &library->query_gid_ex);
  (void)Find(handle, "ibv_reg_dmabuf_mr", &library->register_dmabuf);
  if (void* const mlx5 = dlopen(files.mlx5, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); mlx5 != nullptr) {
    (void)Find(mlx5, "mlx5dv_modify_qp_udp_sport", &library->set_source_port);
    (void)Find(mlx5, "mlx5dv_modify_qp_lag_port", &library->set_lag_port);
    (void)Find(mlx5, "mlx5dv_query_qp_lag_port", &library->query_lag_port);
  }
  return Ok();
}

Result ProcessLibrary(const Library** library) {
  static const OfProcess of_process;
  *library = &of_process.library;
  return of_process.opened;
}

const char* StatusText(int status) {
  switch (status) {
    case abi::kSuccess:
      return "success";
    case abi::kLocalQpError:
      return "its own queue pair or port failed";
    case abi::kLocalProtection:
      return "its own memory is not registered for that";
    case abi::kFlushed:
      return "the queue pair had failed before";
    case abi::kRemoteInvalidRequest:
      return "the peer's device took the request for invalid";
    case abi::kRemoteAccess:
      return "the peer refused the address or key";
    case abi::kRetryExceeded:
      return "the peer did not acknowledge in time";
    case abi::kRnrRetryExceeded:
      return "the peer had no receive posted in time";
    default:
      return "the device reports an error";
  }
}

}  // namespace c4::verbs
