// A program as one writes it for GPUs: NCCL and CUDA's runtime, no kernels. With examples/host_cuda before
// CUDA's headers it runs on host memory; docs/quickstart-c.md builds and runs it.
//
//   devices                  one process with all devices: ncclCommInitAll
//   devices RANK SIZE FILE   one of SIZE processes with a device each; rank 0 leaves the id in FILE
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT 1000000

static void Cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "devices: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
  exit(1);
}

static void Nccl(ncclResult_t result) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "devices: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

typedef struct {
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  float* sent;      // on the device
  float* received;  // on the device
} Device;

static void Prepare(Device* device, float* host) {
  for (size_t i = 0; i < COUNT; ++i) host[i] = (float)(device->rank + 1);
  Cuda(cudaStreamCreate(&device->stream));
  Cuda(cudaMalloc((void**)&device->sent, COUNT * sizeof *device->sent));
  Cuda(cudaMalloc((void**)&device->received, COUNT * sizeof *device->received));
  Cuda(cudaMemset(device->received, 0, COUNT * sizeof *device->received));
  Cuda(cudaMemcpy(device->sent, host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
}

// Every element on the host, or the end.
static void Expect(const Device* device, float* host, float expected, const char* what) {
  Cuda(cudaMemcpy(host, device->received, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < COUNT; ++i) {
    if (host[i] == expected) continue;
    fprintf(stderr, "devices: rank %d: %s: %g instead of %g\n", device->rank, what, host[i], expected);
    exit(1);
  }
  printf("rank %d: %s %g\n", device->rank, what, expected);
}

// `devices` are those of this process, `size` counts all; `first_device` is the number of its first.
static void Run(Device* devices, int count, int size, int first_device) {
  float* const host = malloc(COUNT * sizeof *host);
  if (host == NULL) exit(1);
  for (int i = 0; i < count; ++i) {
    Cuda(cudaSetDevice(first_device + i));
    Prepare(&devices[i], host);
  }
  Nccl(ncclGroupStart());
  for (int i = 0; i < count; ++i) {
    const Device* const d = &devices[i];
    Nccl(ncclAllReduce(d->sent, d->received, COUNT, ncclFloat, ncclSum, d->comm, d->stream));
  }
  Nccl(ncclGroupEnd());
  for (int i = 0; i < count; ++i) {
    Cuda(cudaSetDevice(first_device + i));
    Cuda(cudaStreamSynchronize(devices[i].stream));
    Expect(&devices[i], host, (float)(size * (size + 1) / 2), "the sum is");
  }
  Nccl(ncclGroupStart());
  for (int i = 0; i < count; ++i) {
    const Device* const d = &devices[i];
    Nccl(ncclSend(d->sent, COUNT, ncclFloat, (d->rank + 1) % size, d->comm, d->stream));
    Nccl(ncclRecv(d->received, COUNT, ncclFloat, (d->rank + size - 1) % size, d->comm, d->stream));
  }
  Nccl(ncclGroupEnd());
  for (int i = 0; i < count; ++i) {
    Cuda(cudaSetDevice(first_device + i));  // cudaMemcpy waits for this device's streams
    Expect(&devices[i], host, (float)((devices[i].rank + size - 1) % size + 1), "from its neighbour");
  }
  for (int i = 0; i < count; ++i) {
    Cuda(cudaSetDevice(first_device + i));
    Cuda(cudaFree(devices[i].sent));
    Cuda(cudaFree(devices[i].received));
    Nccl(ncclCommDestroy(devices[i].comm));
    Cuda(cudaStreamDestroy(devices[i].stream));
  }
  free(host);
}

// Written beside the file and renamed, so that nobody reads half of it.
static void Leave(const ncclUniqueId* id, const char* path) {
  char beside[4096];
  snprintf(beside, sizeof beside, "%s.new", path);
  FILE* const file = fopen(beside, "wb");
  if (file == NULL || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 ||
      rename(beside, path) != 0) {
    perror(path);
    exit(1);
  }
}

static void Find(ncclUniqueId* id, const char* path) {
  FILE* file = NULL;
  while ((file = fopen(path, "rb")) == NULL) usleep(10000);
  if (fread(id, sizeof *id, 1, file) != 1) {
    fprintf(stderr, "devices: %s holds no id\n", path);
    exit(1);
  }
  fclose(file);
}

int main(int count, char** arguments) {
  int devices = 0;
  Cuda(cudaGetDeviceCount(&devices));
  if (devices == 0) {
    fprintf(stderr, "devices: there is no device\n");
    return 1;
  }
  if (count == 1) {
    Device* const all = calloc((size_t)devices, sizeof *all);
    ncclComm_t* const comms = calloc((size_t)devices, sizeof(ncclComm_t));
    if (all == NULL || comms == NULL) return 1;
    Nccl(ncclCommInitAll(comms, devices, NULL));
    for (int i = 0; i < devices; ++i) {
      all[i].comm = comms[i];
      Nccl(ncclCommUserRank(comms[i], &all[i].rank));
    }
    Run(all, devices, devices, 0);
    free(comms);
    free(all);
    return 0;
  }
  if (count != 4 || atoi(arguments[2]) < 1 || atoi(arguments[1]) < 0 ||
      atoi(arguments[1]) >= atoi(arguments[2])) {
    fprintf(stderr, "usage: devices [RANK SIZE FILE]\n");
    return 2;
  }
  Device mine = {.rank = atoi(arguments[1])};
  const int size = atoi(arguments[2]);
  ncclUniqueId id;
  if (mine.rank == 0) {
    Nccl(ncclGetUniqueId(&id));
    Leave(&id, arguments[3]);
  } else {
    Find(&id, arguments[3]);
  }
  Cuda(cudaSetDevice(mine.rank % devices));
  Nccl(ncclCommInitRank(&mine.comm, size, id, mine.rank));
  Run(&mine, 1, size, mine.rank % devices);
  if (mine.rank == 0) unlink(arguments[3]);
  return 0;
}
