// c4_torch._C: what the package calls. The backend itself comes to Python as torch.distributed's own class.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "exit_gate.h"
#include "group.h"

namespace {

c10::intrusive_ptr<c10d::Backend> NewGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                           std::chrono::milliseconds timeout, const std::string& name,
                                           std::vector<uint64_t> ranks) {
  auto options = c10::make_intrusive<c10d::Backend::Options>(c4_torch::kBackendName, timeout);
  options->group_name = name;
  options->global_ranks_in_group = std::move(ranks);
  return c10::make_intrusive<c4_torch::Group>(store, rank, size, std::move(options));
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("open_library", &c4_torch::OpenLibrary, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("close_exit_gate", &c4_torch::ExitGate::Close,
             pybind11::call_guard<pybind11::gil_scoped_release>(), pybind11::arg("patience"));
  module.def("new_group", &NewGroup, pybind11::call_guard<pybind11::gil_scoped_release>(),
             pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"), pybind11::arg("timeout"),
             pybind11::arg("name"), pybind11::arg("ranks"));
}
