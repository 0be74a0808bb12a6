#include "c4d_master/mitigation/mitigation_grpc.h"

#include <grpcpp/grpcpp.h>
#include <utility>

#include "c4/v1/mitigation.grpc.pb.h"
#include "service/unary_answers.h"

namespace c4::c4d {
namespace {

// The method takes and gives bytes: see bounded_parse.h.
using Raw = v1::Mitigations::WithRawCallbackMethod_List<v1::Mitigations::Service>;

class MitigationService final : public Raw {
 public:
  MitigationService(const Mitigator* mitigator, const MitigationStore* store,
                    service::StateThread* state_thread, const service::Gate& gate)
      : mitigator_(mitigator), store_(store), answers_(state_thread, gate) {}

  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListDecisionsRequest, v1::ListDecisionsReply>(
        context, request, reply, "c4.v1.Mitigations/List",
        [this](const v1::ListDecisionsRequest&, v1::ListDecisionsReply* answer) {
          answer->set_enabled(mitigator_->enabled());
          // Those of earlier masters, too; without the file at least this one's.
          absl::StatusOr<std::vector<v1::MitigationDecision>> kept = store_->Load();
          const auto& decisions = kept.ok() ? *kept : mitigator_->decisions();
          for (const v1::MitigationDecision& decision : decisions) *answer->add_decisions() = decision;
          return absl::OkStatus();
        });
  }

 private:
  const Mitigator* const mitigator_;
  const MitigationStore* const store_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMitigationService(const Mitigator* mitigator, const MitigationStore* store,
                                                     service::StateThread* state_thread,
                                                     const service::Gate& gate) {
  return std::make_unique<MitigationService>(mitigator, store, state_thread, gate);
}

}  // namespace c4::c4d
