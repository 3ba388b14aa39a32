/* cudnn_plans.cpp - cuDNN's plans for attention without a GPU, from what a GPU
 * has said of itself (cuDNN 9.8 and later).
 *
 *   cudnn_plans record FILE        on a GPU: its properties, as cuDNN has them
 *   cudnn_plans plans [FILE]...    TAP: it can do the graphs of models on each
 *
 * The graphs are the door's own, which is compiled in here. What cuDNN checks
 * is whether it has kernels for them, wherever attention_choose says that it
 * does them; no kernel is loaded. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the headers ask of the runtime, of the GPU that the properties are of.
 */
static int version = 900, multiprocessors = 132;

static cudaError_t planned_device(int *index_out)
{
    *index_out = 0;
    return cudaSuccess;
}

static cudaError_t planned_attribute(
        int *value_out, enum cudaDeviceAttr attribute, int index)
{
    *value_out = attribute == cudaDevAttrComputeCapabilityMajor ? version / 100
                 : attribute == cudaDevAttrComputeCapabilityMinor
                         ? version / 10 % 10
                         : multiprocessors;
    return cudaSuccess;
}

#define cudaGetDevice          planned_device
#define cudaDeviceGetAttribute planned_attribute
#include "kernels/attention/cudnn_door.cpp"

extern "C" {
#include "kernels/attention/attention_choice.h"
}

typedef std::vector<uint8_t> bytes;

static int tests, failures;

static void tap(fe::error_t error, const char *what)
{
    failures += error.is_bad();
    printf("%sok %d - %s", error.is_bad() ? "not " : "", ++tests, what);
    printf("%s%s\n", error.is_bad() ? ": " : "", error.get_message().c_str());
}

static int number_of(const bytes &text, const char *key)
{
    std::string all(text.begin(), text.end());
    size_t at = all.find(key);
    return at == std::string::npos ? 0
                                   : atoi(all.c_str() + all.find(':', at) + 1);
}

static int record(const char *path)
{
    bytes text;
    auto properties = fe::DeviceProperties();
    properties.set_device_id(0);
    auto error = properties.build();
    if (error.is_good())
        error = properties.serialize(text);
    FILE *file = error.is_good() ? fopen(path, "w") : NULL;
    bool is_written =
            file && fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file && fclose(file) != 0)
        is_written = false;
    if (!is_written)
        fprintf(stderr, "cudnn_plans: %s: %s\n", path,
                error.is_bad() ? error.get_message().c_str()
                               : "cannot be written");
    return is_written ? 0 : 1;
}

static bytes content(const char *path)
{
    bytes text;
    FILE *file = fopen(path, "r");
    for (int c; file && (c = getc(file)) != EOF;)
        text.push_back((uint8_t)c);
    if (file)
        fclose(file);
    return text;
}

static const char *const directions[] = {"forward", "backward"};

/* One graph, where attention_choose says that cuDNN does it there. */
static void plan_one(
        const std::shared_ptr<const fe::DeviceProperties> &properties,
        const struct attention_shape *s, const struct attention_facts *facts,
        int direction)
{
    struct graph_key key;
    char what[128];
    struct cudnn_attention a = {};
    bool in_order = facts->choice != ATTENTION_CUDNN;
    struct attention_answer answer = attention_choose(s, facts);
    snprintf(
            what, sizeof what,
            "%s%s, B=%d, %d:%d heads of %d, %d documents, window %d",
            directions[direction],
            direction == ATTENTION_FORWARD ? ""
            : in_order                     ? " in order"
                                           : " in no order",
            s->B, s->H, s->KV, s->D, s->documents, s->window);
    if (*answer.why[direction]) {
        printf("# %s: our own, %s\n", what, answer.why[direction]);
        return;
    }
    a.dtype = DTYPE_BF16;
    a.of.shape = s;
    a.of.dq = direction == ATTENTION_BACKWARD ? &a : NULL;
    a.deterministic = in_order;
    a.documents.bucket = answer.is_packed ? attention_bucket(s) : 0;
    key = key_of(&a);
    fe::graph::Graph graph;
    graph.set_device_properties(properties);
    tap(describe(NULL, graph, key), what);
}

/* GPT-2, Llama 1B and 8B, Gemma 3 1B; two and three whole samples, documents
 * that fill their list and that do not, also in a window.
 * A forward is the same for both choices. */
static void plan(const std::shared_ptr<const fe::DeviceProperties> &properties)
{
    static const int heads[][3] = {
            {12, 12, 64}, {32, 8, 64}, {32, 8, 128}, {4, 1, 256}};
    static const int documents[] = {0, 16, 11};
    struct attention_facts facts = {};
    facts.dtype = DTYPE_BF16;
    facts.has_cudnn = true;
    facts.cudnn = (int)fe::detail::get_backend_version();
    facts.major = version / 100;
    for (const auto &of : heads)
        for (int i = 0; i < 2 * 3 * 3 * 2; i++) {
            int pass = i / 6 % 3;
            struct attention_shape s = {};
            s.B = 2 + i % 2, s.T = 1024, s.H = of[0], s.KV = of[1];
            s.D = of[2], s.scale = 0.125f;
            s.q_stride = s.k_stride = s.v_stride = (of[0] + 2 * of[1]) * of[2];
            s.window = i / 18 ? 512 : 0;
            s.documents = documents[i / 2 % 3] ? documents[i / 2 % 3] : s.B;
            facts.choice = pass == 2 ? ATTENTION_CUDNN : ATTENTION_AUTO;
            plan_one(properties, &s, &facts, pass > 0);
        }
}

/* cuDNN asks whether there is a driver: the toolkit's stub will do. */
static bool open_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL) ||
           dlopen(CUDA_STUB, RTLD_LAZY | RTLD_GLOBAL);
}

int main(int argc, char **argv)
{
    bool records = argc == 3 && strcmp(argv[1], "record") == 0;
    if (!records && (argc < 2 || strcmp(argv[1], "plans") != 0))
        return 64;
    if (!records && argc == 2) {
        printf("1..0 # SKIP no GPU has been recorded\n");
        return 0;
    }
    if (!records && !open_driver()) {
        printf("1..0 # SKIP no libcuda.so.1, and no stub of it\n");
        return 0;
    }
    const char *missing = open_library();
    if (*missing) {
        printf("1..0 # SKIP %s\n", missing);
        return records;
    }
    if (records)
        return record(argv[2]);
    for (int i = 2; i < argc; i++) {
        auto properties = std::make_shared<fe::DeviceProperties>();
        auto text = content(argv[i]);
        auto error = properties->deserialize(text);
        version = number_of(text, "\"deviceVer\"");
        multiprocessors = number_of(text, "\"multiProcessorCount\"");
        tap(error, argv[i]);
        if (error.is_good())
            plan(properties);
    }
    printf("1..%d\n", tests);
    return failures != 0;
}
