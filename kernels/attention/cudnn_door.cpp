/* cudnn_door.cpp - see cudnn_door.h.
 *
 * cudnn-frontend looks up the functions of libcudnn with dlsym, and those of
 * the CUDA runtime in a libcudart.so. This program links the runtime
 * statically, so dlopen and dlsym of the headers are replaced here and return
 * our functions.
 *
 * Graphs: cuDNN's developer guide, "Graph API", attention fprop and bprop.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <mutex>
#include <string.h>

#include "zd_config.h"

static void *door_open(const char *name, int flags);
static void *door_symbol(void *handle, const char *name);
#define dlopen door_open
#define dlsym  door_symbol
#include <cudnn_frontend.h>
#undef dlopen
#undef dlsym

/* Older headers confuse backward's row sums with another statistic and return
 * gradients of zeros. */
#if !defined(CUDNN_FRONTEND_VERSION) || CUDNN_FRONTEND_VERSION < 13200
#error "cudnn-frontend 1.32 or later is needed: ./deploy/install.sh cudnn"
#endif

extern "C" {
#include "base/library.h"
#include "base/log.h"
#include "kernels/attention/cudnn_door.h"
}

namespace fe = cudnn_frontend;
namespace cudnn_frontend
{
void *cudnn_dlhandle;
}

/* The runtime functions that attention uses. Any other is not found: the
 * headers throw, and we decline. */
static const struct {
    const char *name;
    void *function;
} runtime[] = {
#define OURS(name)                                                             \
    {                                                                          \
#name, (void *)name                                                    \
    }
        OURS(cudaDeviceGetAttribute), OURS(cudaGetDevice),
        OURS(cudaGetErrorString),     OURS(cudaGetLastError),
        OURS(cudaMemcpyAsync),        OURS(cudaMemsetAsync),
        OURS(cudaRuntimeGetVersion),  OURS(cudaStreamGetCaptureInfo),
        OURS(cudaStreamIsCapturing),
#undef OURS
};

static void *door_open(const char *name, int flags)
{
    if (strncmp(name, "libcudart.so.", 13) != 0)
        return dlopen(name, flags);
    return atoi(name + 13) == CUDART_VERSION / 1000 ? (void *)runtime : NULL;
}

static void *door_symbol(void *handle, const char *name)
{
    if (handle != (void *)runtime)
        return dlsym(handle, name);
    for (const auto &ours : runtime)
        if (strcmp(ours.name, name) == 0)
            return ours.function;
    return NULL;
}

/* --- the library ---------------------------------------------------------- */

enum { DEVICES = 32, GRAPHS = 64, OLDEST = 90000 };

/* Identifies a graph. Compared byte by byte, so padding must be zero. */
struct graph_key {
    int64_t q_stride, k_stride, v_stride;
    int B, T, H, KV, D, dtype;
    float scale;
    int window; /* 0: none */
    int is_backward, is_deterministic;
    int documents; /* 0: not packed */
};

struct graph_of_shape {
    struct graph_key key;
    std::shared_ptr<fe::graph::Graph> graph; /* empty: declined */
    size_t bytes;                            /* work space */
    bool is_told;                            /* a caller got `why` */
    bool is_checked, is_wrong;               /* compared with our own kernels */
    char why[256];
};

/* The state of one device. Ranks that are threads may share it: hold `lock` to
 * read or write the rest, and until work is queued, because the handle has one
 * stream. */
struct cudnn_device {
    std::mutex lock;
    cudnnHandle_t handle;
    int count;
    struct graph_of_shape graphs[GRAPHS];
};

static struct cudnn_device *devices[DEVICES];

/* When a graph is built, cuDNN compiles engines for Hopper and opens the
 * compiler by name. A library that is already open is found by its name, so we
 * open it from the places that our own search knows. */
static void open_compiler(void)
{
    char library[32], parts[40], why[256];
    const char *const names[] = {library, NULL}, *const part_names[] = {
                                                         parts, NULL};
    snprintf(library, sizeof library, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    snprintf(
            parts, sizeof parts, "libnvrtc-builtins.so.%d.*",
            CUDART_VERSION / 1000);
    if (!library_open(names, why, sizeof why)) {
        zd_log_warning(
                "attention: cuDNN has no compiler, which it needs on Hopper "
                "and later; without it our own, slower kernels do attention "
                "there: %s; the CUDA toolkit has it, or pip install "
                "nvidia-cuda-nvrtc",
                why);
        return;
    }
    library_open(part_names, why, sizeof why);
}

/* Opens libcudnn once per process. Returns "" on success, else why not. */
static const char *open_library(void)
{
    static std::once_flag once;
    static char why[256];
    std::call_once(once, [] {
        const char *file = getenv("ZEROD_CUDNN");
        const char *const names[] = {
                file && *file ? file : "libcudnn.so.9", NULL};
        fe::cudnn_dlhandle = library_open(names, why, sizeof why);
        if (!fe::cudnn_dlhandle) {
            if (!*why)
                snprintf(why, sizeof why, "no libcudnn.so.9");
            return;
        }
        *why = 0;
        open_compiler();
        if (fe::detail::get_backend_version() < OLDEST)
            snprintf(why, sizeof why, "cuDNN is older than 9.0");
        /* If a deterministic backward has an O(T) and an O(T^2) variant
         * (Hopper, 9.25 and later), select O(T). */
        setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 0);
    });
    return why;
}

static const char *library_name(void)
{
    static char name[32];
    size_t version = fe::detail::get_backend_version();
    snprintf(
            name, sizeof name, "cuDNN %zu.%zu", version / 10000,
            version / 100 % 100);
    return name;
}

static bool open_device(int index, char *why, size_t why_bytes)
{
    if (devices[index])
        return true;
    auto device = new struct cudnn_device();
    cudnnStatus_t status = fe::detail::create_handle(&device->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(why, why_bytes, "%s", fe::detail::get_error_string(status));
        delete device;
        return false;
    }
    devices[index] = device;
    return true;
}

extern "C" bool cudnn_open(
        const char **name_out, int *version_out, char *why, size_t why_bytes)
{
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    int index = 0;
    try {
        const char *missing = open_library();
        if (*missing) {
            snprintf(why, why_bytes, "%s", missing);
            return false;
        }
        if (cudaGetDevice(&index) != cudaSuccess || index >= DEVICES) {
            cudaGetLastError();
            snprintf(why, why_bytes, "no device");
            return false;
        }
        *name_out = library_name();
        *version_out = (int)fe::detail::get_backend_version();
        return open_device(index, why, why_bytes);
    } catch (const std::exception &e) {
        snprintf(why, why_bytes, "%s", e.what());
        return false;
    }
}

/* --- graphs --------------------------------------------------------------- */

/* The tensors of a graph. */
enum {
    Q = 1,
    K,
    V,
    OUT,
    LSE,
    DOUT,
    DQ,
    DK,
    DV,
    LENGTHS, /* from here in the order of enum packed_table */
    Q_AT,
    K_AT,
    V_AT,
    OUT_AT,
    KV_AT,
    LSE_AT
};
static_assert(LSE_AT - LENGTHS == PACKED_LSE, "one for each table");

typedef std::shared_ptr<fe::graph::Tensor_attributes> tensor;

/* The int32 tables of one graph; each tensor is made once and shared. */
class documents_of
{
    fe::graph::Graph &graph;
    int64_t documents;
    tensor made[LSE_AT + 1];

    tensor table(int64_t id, int64_t count)
    {
        if (!made[id])
            made[id] =
                    graph.tensor(fe::graph::Tensor_attributes()
                                         .set_name("documents")
                                         .set_uid(id)
                                         .set_dim({count, 1, 1, 1})
                                         .set_stride({1, 1, 1, 1})
                                         .set_data_type(fe::DataType_t::INT32));
        return made[id];
    }

  public:
    documents_of(fe::graph::Graph &graph, const struct graph_key &key)
        : graph(graph), documents(key.documents)
    {
    }
    void set_offsets(fe::graph::Tensor_attributes &of, int64_t id)
    {
        if (documents)
            of.set_ragged_offset(table(id, documents + 1));
    }
    template <typename options_of> void set_lengths(options_of &options)
    {
        if (documents)
            options.set_padding_mask(true)
                    .set_seq_len_q(table(LENGTHS, documents))
                    .set_seq_len_kv(table(LENGTHS, documents));
    }
};

/* A tensor (B, heads, T, D) with tokens `stride` elements apart; for packed
 * documents B is their number, and `offsets` is the table of their offsets. */
static fe::graph::Tensor_attributes rows_tensor(
        const struct graph_key &key, documents_of &documents, int64_t id,
        int64_t offsets, int64_t heads, int64_t stride)
{
    int64_t T = key.T, D = key.D;
    int64_t B = key.documents ? key.documents : key.B;
    auto made = fe::graph::Tensor_attributes()
                        .set_name("rows")
                        .set_uid(id)
                        .set_dim({B, heads, T, D})
                        .set_stride({T * stride, D, stride, 1});
    documents.set_offsets(made, offsets);
    return made;
}

static void set_output(const tensor &to, fe::graph::Tensor_attributes as)
{
    to->set_output(true)
            .set_uid(as.get_uid())
            .set_dim(as.get_dim())
            .set_stride(as.get_stride());
    if (as.get_ragged_offset())
        to->set_ragged_offset(as.get_ragged_offset());
}

/* In a packed backward cudnn-frontend counts the work space of row sums as (H,
 * B*T), so lse has that layout there. Forward has no such sums and writes our
 * layout, (B, H, T). */
static fe::graph::Tensor_attributes lse_tensor(
        const struct graph_key &key, documents_of &documents)
{
    int64_t H = key.H, T = key.T, B = key.documents ? key.documents : key.B;
    int64_t head = key.documents && key.is_backward ? key.B * T : T;
    auto made = fe::graph::Tensor_attributes()
                        .set_name("lse")
                        .set_uid(LSE)
                        .set_dim({B, H, T, 1})
                        .set_stride({H * head, head, 1, 1})
                        .set_data_type(fe::DataType_t::FLOAT);
    documents.set_offsets(made, LSE_AT);
    return made;
}

/* Row i sees the columns j with j + window > i (sliding_window_mask of the
 * headers), in addition to the causal mask. */
template <typename options_of>
static void set_window(options_of &options, const struct graph_key &key)
{
    if (key.window)
        options.set_diagonal_band_left_bound(key.window);
}

static void describe_forward(
        fe::graph::Graph &graph, const struct graph_key &key)
{
    int64_t H = key.H, KV = key.KV;
    auto documents = documents_of(graph, key);
    auto options = fe::graph::SDPA_attributes();
    options.set_name("forward")
            .set_generate_stats(true)
            .set_causal_mask(true)
            .set_attn_scale(key.scale);
    set_window(options, key);
    documents.set_lengths(options);
    auto results = graph.sdpa(
            graph.tensor(rows_tensor(key, documents, Q, Q_AT, H, key.q_stride)),
            graph.tensor(
                    rows_tensor(key, documents, K, K_AT, KV, key.k_stride)),
            graph.tensor(
                    rows_tensor(key, documents, V, V_AT, KV, key.v_stride)),
            options);
    set_output(
            results[0], rows_tensor(key, documents, OUT, OUT_AT, H, H * key.D));
    set_output(results[1], lse_tensor(key, documents));
    results[1]->set_data_type(fe::DataType_t::FLOAT);
}

static void describe_backward(
        fe::graph::Graph &graph, const struct graph_key &key)
{
    int64_t H = key.H, KV = key.KV, row = H * key.D, kv_row = KV * key.D;
    int64_t tokens = (int64_t)key.B * key.T;
    bool packed = key.documents > 0;
    auto documents = documents_of(graph, key);
    auto rows = [&](int64_t id, int64_t offsets, int64_t heads,
                    int64_t stride) {
        return rows_tensor(key, documents, id, offsets, heads, stride);
    };
    auto options = fe::graph::SDPA_backward_attributes();
    options.set_name("backward")
            .set_causal_mask(true)
            .set_attn_scale(key.scale)
            .set_deterministic_algorithm(key.is_deterministic);
    set_window(options, key);
    documents.set_lengths(options);
    if (packed)
        options.set_max_total_seq_len_q(tokens).set_max_total_seq_len_kv(
                tokens);
    auto results = graph.sdpa_backward(
            graph.tensor(rows(Q, Q_AT, H, key.q_stride)),
            graph.tensor(rows(K, K_AT, KV, key.k_stride)),
            graph.tensor(rows(V, V_AT, KV, key.v_stride)),
            graph.tensor(rows(OUT, OUT_AT, H, row)),
            graph.tensor(rows(DOUT, OUT_AT, H, row)),
            graph.tensor(lse_tensor(key, documents)), options);
    set_output(results[0], rows(DQ, OUT_AT, H, packed ? row : key.q_stride));
    set_output(results[1], rows(DK, KV_AT, KV, packed ? kv_row : key.k_stride));
    set_output(results[2], rows(DV, KV_AT, KV, packed ? kv_row : key.v_stride));
}

/* Returns the first error of the headers. With a NULL handle it checks for a
 * GPU that is not here, whose properties are set on the graph. */
static fe::error_t describe(
        cudnnHandle_t handle, fe::graph::Graph &graph,
        const struct graph_key &key)
{
    graph.set_io_data_type(
                 key.dtype == DTYPE_BF16 ? fe::DataType_t::BFLOAT16
                                         : fe::DataType_t::HALF)
            .set_intermediate_data_type(fe::DataType_t::FLOAT)
            .set_compute_data_type(fe::DataType_t::FLOAT);
    if (key.is_backward)
        describe_backward(graph, key);
    else
        describe_forward(graph, key);
    auto error = graph.validate();
    if (error.is_good())
        error = graph.build_operation_graph(handle);
    if (error.is_good())
        error = graph.create_execution_plans({fe::HeurMode_t::A});
    if (error.is_good())
        error = graph.check_support();
    return error;
}

static fe::error_t build(
        struct cudnn_device *device, fe::graph::Graph &graph,
        const struct graph_key &key, int64_t *bytes)
{
    auto error = describe(device->handle, graph, key);
    if (error.is_good())
        error = graph.build_plans();
    if (error.is_good())
        error = graph.get_workspace_size(*bytes);
    return error;
}

/* Builds the graph of `made`, or sets its `why`. */
static void graph_make(struct cudnn_device *device, struct graph_of_shape *made)
{
    int64_t bytes = 0;
    try {
        auto graph = std::make_shared<fe::graph::Graph>();
        auto error = build(device, *graph, made->key, &bytes);
        if (error.is_bad()) {
            snprintf(
                    made->why, sizeof made->why, "%s",
                    error.get_message().c_str());
            return;
        }
        made->graph = graph;
        made->bytes = (size_t)bytes;
    } catch (const std::exception &e) {
        snprintf(made->why, sizeof made->why, "%s", e.what());
    }
}

static struct graph_key key_of(const struct cudnn_attention *a)
{
    struct graph_key key;
    const struct attention_shape *s = a->of.shape;
    memset(&key, 0, sizeof key);
    key.q_stride = s->q_stride;
    key.k_stride = s->k_stride;
    key.v_stride = s->v_stride;
    key.B = s->B, key.T = s->T, key.H = s->H, key.KV = s->KV, key.D = s->D;
    key.dtype = a->dtype;
    key.scale = s->scale;
    key.window = attention_slides(s) ? s->window : 0;
    key.is_backward = a->of.dq != NULL;
    key.is_deterministic = key.is_backward && a->deterministic;
    key.documents = a->documents.bucket;
    return key;
}

/* The graph of this shape, built at its first use; NULL: the table is full. */
static struct graph_of_shape *graph_get(
        struct cudnn_device *device, const struct cudnn_attention *a)
{
    struct graph_key key = key_of(a);
    for (int i = 0; i < device->count; i++)
        if (memcmp(&device->graphs[i].key, &key, sizeof key) == 0)
            return &device->graphs[i];
    if (device->count == GRAPHS)
        return NULL;
    struct graph_of_shape *made = &device->graphs[device->count++];
    made->key = key;
    graph_make(device, made);
    return made;
}

/* Whether the graph can run with the work space of `a`. */
static bool is_usable(
        struct graph_of_shape *graph, const struct cudnn_attention *a)
{
    if (!graph || !graph->graph || graph->is_wrong)
        return false;
    if (graph->bytes <= a->workspace_bytes)
        return true;
    snprintf(
            graph->why, sizeof graph->why,
            "it needs %zu bytes of work space, there are %zu", graph->bytes,
            a->workspace_bytes);
    return false;
}

/* Why the graph was declined, the first time; else NULL. */
static const char *tell(struct graph_of_shape *graph)
{
    if (!graph || graph->is_told)
        return NULL;
    graph->is_told = true;
    return graph->why;
}

/* The headers need this map, a small allocation on the host. */
static bool execute(
        struct cudnn_device *device, const struct graph_of_shape *graph,
        cudaStream_t stream, const struct cudnn_attention *a, char *why,
        size_t why_bytes)
{
    const struct attention &of = a->of;
    std::unordered_map<int64_t, void *> places = {
            {Q, (void *)of.q}, {K, (void *)of.k}, {V, (void *)of.v},
            {OUT, of.out},     {LSE, of.lse},
    };
    if (of.dq) {
        places[DOUT] = (void *)of.dout;
        places[DQ] = of.dq, places[DK] = of.dk, places[DV] = of.dv;
    }
    const struct cudnn_documents *d = &a->documents;
    for (int i = 0; d->bucket && i < PACKED_TABLES; i++)
        if (of.dq || i != PACKED_KV)
            places[LENGTHS + i] = (void *)(d->tables + i * d->plane);
    cudnnStatus_t status = fe::detail::set_stream(device->handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(why, why_bytes, "%s", fe::detail::get_error_string(status));
        return false;
    }
    auto error = graph->graph->execute(device->handle, places, a->workspace);
    snprintf(why, why_bytes, "%s", error.get_message().c_str());
    return error.is_good();
}

/* The state of the thread's device, or NULL. */
static struct cudnn_device *device_now(void)
{
    int index = 0;
    bool is_known = cudaGetDevice(&index) == cudaSuccess && index < DEVICES;
    return is_known ? devices[index] : NULL;
}

extern "C" enum zd_status cudnn_attention_run(
        void *stream, const struct cudnn_attention *a,
        enum cudnn_outcome *outcome_out, const char **why_out)
{
    char why[256] = "";
    struct cudnn_device *device = device_now();
    *outcome_out = CUDNN_DECLINED;
    *why_out = NULL;
    if (!device)
        return ZD_OK;
    try {
        std::lock_guard<std::mutex> guard(device->lock);
        struct graph_of_shape *graph = graph_get(device, a);
        if (!is_usable(graph, a)) {
            *why_out = tell(graph);
            return ZD_OK;
        }
        if (execute(device, graph, (cudaStream_t)stream, a, why, sizeof why)) {
            *outcome_out = graph->is_checked ? CUDNN_DONE : CUDNN_UNCHECKED;
            return ZD_OK;
        }
    } catch (const std::exception &e) {
        snprintf(why, sizeof why, "%s", e.what());
    }
    return ZD_FAIL(
            ZD_ERR_DEVICE, "E1223", "cuDNN failed in attention: %s", why);
}

extern "C" bool cudnn_attention_bytes(
        const struct cudnn_attention *a, size_t *bytes_out)
{
    struct cudnn_device *device = device_now();
    if (!device)
        return false;
    std::lock_guard<std::mutex> guard(device->lock);
    struct graph_of_shape *graph = graph_get(device, a);
    if (!graph || !graph->graph || graph->is_wrong)
        return false;
    *bytes_out = graph->bytes;
    return true;
}

/* Keeps a wrong graph: its queued work may still run. */
extern "C" void cudnn_attention_checked(
        const struct cudnn_attention *a, bool agrees)
{
    struct cudnn_device *device = device_now();
    if (!device)
        return;
    std::lock_guard<std::mutex> guard(device->lock);
    struct graph_of_shape *graph = graph_get(device, a);
    if (!graph)
        return;
    graph->is_checked = true;
    if (!agrees)
        graph->is_wrong = graph->is_told = true;
}
