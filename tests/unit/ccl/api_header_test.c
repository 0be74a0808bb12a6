// The public headers as a C program includes them (part of api_layout_test).
#include "ccl/include/c4/marks.h"
#include "ccl/include/c4/mitigation.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"

size_t ConfigBytesInC(void);
int DefaultBlockingInC(void);
size_t WorkerBytesInC(void);
c4Marks MarksInC(void);
c4Mitigation MitigationInC(void);

size_t ConfigBytesInC(void) {
  return sizeof(ncclConfig_t);
}

int DefaultBlockingInC(void) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  return info.size == sizeof info ? config.blocking : 0;
}

size_t WorkerBytesInC(void) {
  return sizeof(c4Worker);
}

c4Marks MarksInC(void) {
  return c4FindMarks();
}

c4Mitigation MitigationInC(void) {
  return c4FindMitigation();
}
