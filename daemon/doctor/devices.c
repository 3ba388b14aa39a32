/* devices.c - the driver, the GPUs, and NVIDIA's libraries:
 * each is opened by the door that a run opens it by. */
#include "daemon/doctor/doctor.h"

#include "base/library.h"
#include "base/must.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/kernels.h"

#include "zd_config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 64 };

/* --- libraries ------------------------------------------------------------ */

static void add_library(
        json_t *list, const char *name, const char *file, const char *version)
{
    char path[PATH_MAX];
    bool is_loaded = library_path(file, path, sizeof path);
    json_array_append_new(
            list, json_pack(
                          "{s:s, s:s, s:s?, s:s?}", "name", name, "file", file,
                          "version", version, "path", is_loaded ? path : NULL));
}

static void see_products(struct doctor *doctor, json_t *list)
{
    const char *name = NULL;
    if (kernels_products_library(&name) != ZD_OK && doctor->wants_gpu)
        doctor_stop(doctor);
    zd_error_clear();
    add_library(
            list, "cuBLASLt", "libcublasLt.so",
            name ? name + strlen("cuBLASLt ") : NULL);
}

static void see_cudnn(struct doctor *doctor, json_t *list)
{
    static const char cost[] =
            "our own kernels do attention: 11 % of a step of Llama 1B at 4096 "
            "tokens on an H100, and more with longer samples";
    enum dtype dtype = doctor->job->train.dtype;
    enum attention_choice choice = doctor->job->model.attn;
    struct attention_facts facts;
    char version[32] = "", path[PATH_MAX];
    kernels_set_attention(choice);
    facts = attention_cuda_facts(dtype == DTYPE_FP32 ? DTYPE_BF16 : dtype);
    if (facts.cudnn)
        snprintf(
                version, sizeof version, "%d.%d.%d", facts.cudnn / 10000,
                facts.cudnn / 100 % 100, facts.cudnn % 100);
    add_library(list, "cuDNN", "libcudnn.so", *version ? version : NULL);
    add_library(list, "NVRTC", "libnvrtc.so", NULL);
    if (!doctor->device || choice == ATTENTION_OWN || dtype == DTYPE_FP32)
        return;
    if (!ZD_HAVE_CUDNN)
        doctor_warn(
                doctor, cost, "deploy/install.sh cudnn, and build again",
                "this zerod was built without cudnn-frontend");
    else if (!facts.cudnn)
        doctor_warn(
                doctor, cost,
                "pip install nvidia-cudnn-cu13, or its folder in "
                "ZEROD_LIBRARY_PATH",
                "there is no cuDNN");
    else if (!library_path("libnvrtc.so", path, sizeof path))
        doctor_warn(
                doctor, cost, "pip install nvidia-cuda-nvrtc",
                "there is no NVRTC, with which cuDNN compiles its attention "
                "for Hopper and later");
    if (facts.cudnn && facts.major == 9 && facts.cudnn < 92500 &&
        choice == ATTENTION_AUTO)
        doctor_warn(
                doctor, cost,
                "cuDNN 9.25, or model.attn = \"cudnn\", whose sums of dq are "
                "in no fixed order",
                "attention's backward is our own: cuDNN %s sums dq in a fixed "
                "order only with O(T^2) memory on Hopper",
                version);
}

static void see_nccl(struct doctor *doctor, json_t *list)
{
    const char *name = NULL;
    bool is_there = comm_nccl_library(&name) == ZD_OK;
    if (!is_there && doctor->wants_gpu && doctor->gpus > 1 &&
        doctor->job->comm.backend == COMM_AUTO)
        doctor_warn(
                doctor,
                "collectives go through the memory of the host and MPI: tens "
                "of times slower than NVLink",
                "pip install nvidia-nccl-cu13, or its folder in "
                "ZEROD_LIBRARY_PATH",
                "no NCCL for %d GPUs: %s", doctor->gpus, zd_error_get()->what);
    zd_error_clear();
    add_library(
            list, "NCCL", "libnccl.so", name ? name + strlen("nccl ") : NULL);
}

/* --- GPUs ----------------------------------------------------------------- */

static json_t *gpu_json(const struct device_facts *gpu)
{
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", gpu->major, gpu->minor);
    return json_pack(
            "{s:i, s:s, s:s, s:s, s:s, s:I, s:i}", "index", gpu->index, "name",
            gpu->name, "uuid", gpu->uuid, "pci", gpu->pci, "compute_capability",
            capability, "memory_bytes", (json_int_t)gpu->total_bytes,
            "numa_node", gpu->numa_node);
}

static void see_gpus(struct doctor *doctor)
{
    struct device_facts *all = zd_array(MOST_GPUS, sizeof *all);
    json_t *list = json_array();
    const char *why = NULL;
    int count = device_list(all, MOST_GPUS);
    doctor->gpus = count < MOST_GPUS ? count : MOST_GPUS;
    for (int i = 0; i < doctor->gpus; i++)
        json_array_append_new(list, gpu_json(&all[i]));
    doctor_put(doctor, "gpus", list);
    if (doctor->gpus > 0) {
        doctor_put(doctor, "driver_cuda", json_integer(all[0].driver));
        doctor_put(doctor, "runtime_cuda", json_integer(all[0].runtime));
    } else if (device_gpu_count(&why) == 0) {
        doctor_put(doctor, "no_gpu", json_string(why));
    }
    free(all);
}

/* --- this rank's ---------------------------------------------------------- */

static void open_own(struct doctor *doctor, int local_rank, int local_size)
{
    const struct device_options *options = &doctor->job->device;
    int place;
    enum zd_status status = device_place(options, local_rank, &place);
    if (status == ZD_OK)
        status = device_open(DEVICE_CUDA, place, local_size, &doctor->device);
    if (status == ZD_OK)
        status = device_share(
                doctor->device,
                local_size > doctor->gpus
                        ? (local_size + doctor->gpus - 1) / doctor->gpus
                        : 1);
    if (status != ZD_OK) {
        doctor_stop(doctor);
        return;
    }
    device_use(doctor->device);
    struct device_facts facts = device_facts();
    json_t *own = json_pack(
            "{s:i, s:s, s:I, s:I}", "index", facts.index, "name", facts.name,
            "free_bytes", (json_int_t)facts.free_bytes, "context_bytes",
            (json_int_t)facts.context_bytes);
    doctor_put(doctor, "gpu", own);
}

void doctor_devices(struct doctor *doctor, int local_rank, int local_size)
{
    enum device_backend asked = doctor->job->device.backend;
    json_t *libraries = json_array();
    see_gpus(doctor);
    doctor->wants_gpu =
            asked == DEVICE_CUDA || (asked == DEVICE_AUTO && doctor->gpus > 0);
    doctor_put(doctor, "libraries", libraries);
    if (doctor->wants_gpu)
        open_own(doctor, local_rank, local_size);
    add_library(libraries, "driver", "libcuda.so", NULL);
    see_products(doctor, libraries);
    see_cudnn(doctor, libraries);
    see_nccl(doctor, libraries);
}
