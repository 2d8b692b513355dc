#pragma once
/* SPDX-License-Identifier: Apache-2.0
 * Included before everything else where the fake takes the place of CUDA and NCCL: libtorch's CPU build
 * brings CUDA's runtime along, whose functions would otherwise be called. */
#define cudaDeviceGetStreamPriorityRange fake_cudaDeviceGetStreamPriorityRange
#define cudaDeviceSynchronize fake_cudaDeviceSynchronize
#define cudaDriverGetVersion fake_cudaDriverGetVersion
#define cudaEventCreateWithFlags fake_cudaEventCreateWithFlags
#define cudaEventDestroy fake_cudaEventDestroy
#define cudaEventElapsedTime fake_cudaEventElapsedTime
#define cudaEventQuery fake_cudaEventQuery
#define cudaEventRecord fake_cudaEventRecord
#define cudaFree fake_cudaFree
#define cudaGetDevice fake_cudaGetDevice
#define cudaGetDeviceCount fake_cudaGetDeviceCount
#define cudaGetErrorString fake_cudaGetErrorString
#define cudaGetLastError fake_cudaGetLastError
#define cudaMalloc fake_cudaMalloc
#define cudaMemGetInfo fake_cudaMemGetInfo
#define cudaMemcpyAsync fake_cudaMemcpyAsync
#define cudaMemset fake_cudaMemset
#define cudaPeekAtLastError fake_cudaPeekAtLastError
#define cudaSetDevice fake_cudaSetDevice
#define cudaStreamCreateWithFlags fake_cudaStreamCreateWithFlags
#define cudaStreamCreateWithPriority fake_cudaStreamCreateWithPriority
#define cudaStreamDestroy fake_cudaStreamDestroy
#define cudaStreamQuery fake_cudaStreamQuery
#define cudaStreamSynchronize fake_cudaStreamSynchronize
#define cudaStreamWaitEvent fake_cudaStreamWaitEvent
/* CUDA 12 calls it by a name with its version. */
#define cudaGetDeviceProperties_v2 fake_cudaGetDeviceProperties_v2
#include <cuda_runtime_api.h>
#ifndef cudaGetDeviceProperties
#define cudaGetDeviceProperties fake_cudaGetDeviceProperties
#ifdef __cplusplus
extern "C"
#endif
    cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device);
#endif

#define ncclAllGather fake_ncclAllGather
#define ncclAllReduce fake_ncclAllReduce
#define ncclCommAbort fake_ncclCommAbort
#define ncclCommDeregister fake_ncclCommDeregister
#define ncclCommDestroy fake_ncclCommDestroy
#define ncclCommFinalize fake_ncclCommFinalize
#define ncclCommGetAsyncError fake_ncclCommGetAsyncError
#define ncclCommInitRankConfig fake_ncclCommInitRankConfig
#define ncclCommRegister fake_ncclCommRegister
#define ncclGetErrorString fake_ncclGetErrorString
#define ncclGetLastError fake_ncclGetLastError
#define ncclGetUniqueId fake_ncclGetUniqueId
#define ncclGetVersion fake_ncclGetVersion
#define ncclGroupEnd fake_ncclGroupEnd
#define ncclGroupStart fake_ncclGroupStart
#define ncclRecv fake_ncclRecv
#define ncclReduceScatter fake_ncclReduceScatter
#define ncclSend fake_ncclSend
