/* cudnn_frontend.h - a stand-in for the headers of cudnn-frontend, for
 * kernels/attention/cudnn_door.cpp alone: the names that it uses, told by a
 * test what to answer (cudnn_standin.h). No library is behind it. */
#pragma once

#define CUDNN_FRONTEND_VERSION 13200

#include "tests/cuda/cudnn/cudnn_standin.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

typedef struct cudnnContext *cudnnHandle_t;
typedef int cudnnStatus_t;
enum { CUDNN_STATUS_SUCCESS };

namespace cudnn_frontend
{
extern void *cudnn_dlhandle;

enum class DataType_t { FLOAT, HALF, BFLOAT16, INT32 };
enum class HeurMode_t { A };

struct error_t {
    std::string message;
    bool is_good() const
    {
        return message.empty();
    }
    bool is_bad() const
    {
        return !is_good();
    }
    std::string get_message() const
    {
        return message;
    }
};

namespace detail
{
inline size_t get_backend_version()
{
    return cudnn_standin.version;
}
inline cudnnStatus_t create_handle(cudnnHandle_t *out)
{
    *out = (cudnnHandle_t)&cudnn_standin;
    cudnn_standin.handles++;
    return CUDNN_STATUS_SUCCESS;
}
inline const char *get_error_string(cudnnStatus_t status)
{
    return "of the stand-in";
}
inline cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (__atomic_fetch_add(&cudnn_standin.inside, 1, __ATOMIC_SEQ_CST))
        __atomic_fetch_add(&cudnn_standin.overlaps, 1, __ATOMIC_SEQ_CST);
    cudnn_standin.stream = stream;
    sched_yield(); /* whoever may come in now does */
    return CUDNN_STATUS_SUCCESS;
}
} // namespace detail

namespace graph
{
/* A setter that keeps its value, one that does not, and a getter. */
#define SETS(self, name, type, field)                                          \
    self &name(const type &value)                                              \
    {                                                                          \
        field = value;                                                         \
        return *this;                                                          \
    }
#define TAKES(self, name, type)                                                \
    self &name(type)                                                           \
    {                                                                          \
        return *this;                                                          \
    }
#define GIVES(name, type, field)                                               \
    type name() const                                                          \
    {                                                                          \
        return field;                                                          \
    }

struct Tensor_attributes;
typedef std::shared_ptr<Tensor_attributes> tensor_ptr;

struct Tensor_attributes {
    int64_t uid = 0;
    std::vector<int64_t> dim, stride;
    bool is_output = false;
    tensor_ptr ragged;

    SETS(Tensor_attributes, set_uid, int64_t, uid)
    SETS(Tensor_attributes, set_dim, std::vector<int64_t>, dim)
    SETS(Tensor_attributes, set_stride, std::vector<int64_t>, stride)
    SETS(Tensor_attributes, set_output, bool, is_output)
    SETS(Tensor_attributes, set_ragged_offset, tensor_ptr, ragged)
    TAKES(Tensor_attributes, set_name, const char *)
    TAKES(Tensor_attributes, set_data_type, DataType_t)
    GIVES(get_uid, int64_t, uid)
    GIVES(get_dim, std::vector<int64_t>, dim)
    GIVES(get_stride, std::vector<int64_t>, stride)
    GIVES(get_ragged_offset, tensor_ptr, ragged)
};

struct SDPA_backward_attributes {
    bool is_deterministic = false, pads = false;
    tensor_ptr lengths_q, lengths_kv;
    int64_t most_q = 0, most_kv = 0;
    float scale = 1;
    int64_t left = 0; /* 0: no bound */

    SETS(SDPA_backward_attributes, set_attn_scale, float, scale)
    SETS(SDPA_backward_attributes, set_diagonal_band_left_bound, int64_t, left)
    SETS(SDPA_backward_attributes, set_deterministic_algorithm, bool,
         is_deterministic)
    SETS(SDPA_backward_attributes, set_padding_mask, bool, pads)
    SETS(SDPA_backward_attributes, set_seq_len_q, tensor_ptr, lengths_q)
    SETS(SDPA_backward_attributes, set_seq_len_kv, tensor_ptr, lengths_kv)
    SETS(SDPA_backward_attributes, set_max_total_seq_len_q, int64_t, most_q)
    SETS(SDPA_backward_attributes, set_max_total_seq_len_kv, int64_t, most_kv)
    TAKES(SDPA_backward_attributes, set_name, const char *)
    TAKES(SDPA_backward_attributes, set_causal_mask, bool)
    TAKES(SDPA_backward_attributes, set_generate_stats, bool)
};
typedef SDPA_backward_attributes SDPA_attributes;

} // namespace graph
} // namespace cudnn_frontend

#include "tests/cuda/cudnn/attention.h"

namespace cudnn_frontend
{
namespace graph
{
class Graph
{
    struct attention described;

    template <size_t outputs> std::array<tensor_ptr, outputs> make()
    {
        std::array<tensor_ptr, outputs> made;
        for (auto &one : made)
            one = std::make_shared<Tensor_attributes>();
        return made;
    }

  public:
    Graph &set_io_data_type(DataType_t type)
    {
        described.is_bf16 = type == DataType_t::BFLOAT16;
        return *this;
    }
    TAKES(Graph, set_intermediate_data_type, DataType_t)
    TAKES(Graph, set_compute_data_type, DataType_t)
    tensor_ptr tensor(const Tensor_attributes &as)
    {
        return std::make_shared<Tensor_attributes>(as);
    }
    std::array<tensor_ptr, 2> sdpa(
            tensor_ptr q, tensor_ptr k, tensor_ptr v,
            const SDPA_attributes &how)
    {
        auto made = make<2>();
        cudnn_standin.is_backward = 0;
        described.how = how;
        described.q = q, described.k = k, described.v = v;
        described.out = made[0], described.lse = made[1];
        return made;
    }
    std::array<tensor_ptr, 3> sdpa_backward(
            tensor_ptr q, tensor_ptr k, tensor_ptr v, tensor_ptr out,
            tensor_ptr dout, tensor_ptr lse,
            const SDPA_backward_attributes &how)
    {
        auto made = make<3>();
        cudnn_standin.is_backward = 1;
        cudnn_standin.is_deterministic = how.is_deterministic;
        described.how = how;
        described.q = q, described.k = k, described.v = v;
        described.out = out, described.dout = dout, described.lse = lse;
        described.dq = made[0], described.dk = made[1], described.dv = made[2];
        return made;
    }
    error_t validate()
    {
        if (cudnn_standin.throws)
            throw std::runtime_error(cudnn_standin.throws);
        return {described.refusal()};
    }
    error_t build_operation_graph(cudnnHandle_t handle)
    {
        return {};
    }
    error_t create_execution_plans(const std::vector<HeurMode_t> &modes)
    {
        return {};
    }
    error_t check_support()
    {
        const char *says = cudnn_standin.refuses_graph;
        return {says ? says : ""};
    }
    error_t build_plans()
    {
        cudnn_standin.built++;
        return {};
    }
    error_t get_workspace_size(int64_t &bytes)
    {
        bytes = cudnn_standin.workspace;
        if (cudnn_standin.computes)
            bytes += described.workspace_bytes();
        return {};
    }
    /* With the runtime that the headers load by its name. */
    error_t execute(
            cudnnHandle_t handle, std::unordered_map<int64_t, void *> &places,
            void *workspace)
    {
        struct leaving {
            ~leaving()
            {
                __atomic_fetch_sub(&cudnn_standin.inside, 1, __ATOMIC_SEQ_CST);
            }
        } leaving;
        typedef cudaError_t clear_fn(void *, int, size_t, cudaStream_t);
        void *library = dlopen("libcudart.so.13", 0);
        auto clear = (clear_fn *)dlsym(library, "cudaMemsetAsync");
        if (!clear || dlsym(library, "cudaLaunchKernel"))
            return {"not the program's own runtime"};
        /* the headers ask whether a graph is being captured, each time */
        typedef cudaError_t info_fn(
                cudaStream_t, cudaStreamCaptureStatus *, unsigned long long *,
                cudaGraph_t *, const cudaGraphNode_t **,
                const cudaGraphEdgeData **, size_t *);
        auto info = (info_fn *)dlsym(library, "cudaStreamGetCaptureInfo");
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
        cudaStream_t stream = (cudaStream_t)cudnn_standin.stream;
        if (!info)
            return {"Unable to find symbol cudaStreamGetCaptureInfo"};
        info(stream, &status, NULL, NULL, NULL, NULL, NULL);
        if (status != cudaStreamCaptureStatusNone)
            return {"nobody captures"};
        if (cudnn_standin.fails_to_execute)
            return {cudnn_standin.fails_to_execute};
        cudnn_standin.executed++;
        if (cudnn_standin.computes)
            return {described.queue(stream, places)};
        tensor_ptr first = described.dq ? described.dq : described.out;
        size_t count = 2; /* bytes of an element */
        for (int64_t of : first->dim)
            count *= (size_t)of;
        clear(places[first->uid], 0, count, stream);
        return {};
    }
};
#undef SETS
#undef TAKES
#undef GIVES
} // namespace graph
} // namespace cudnn_frontend
