/* print.c - the report as text. */
#include "daemon/doctor/doctor.h"

#include <string.h>

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "";
}

static long long number(const json_t *object, const char *name)
{
    return (long long)json_integer_value(json_object_get(object, name));
}

static double real(const json_t *object, const char *name)
{
    return json_real_value(json_object_get(object, name));
}

static double gib(const json_t *object, const char *name)
{
    return (double)number(object, name) / (1 << 30);
}

static void print_host(const json_t *report, FILE *to)
{
    const json_t *host = json_object_get(report, "host");
    const json_t *limits = json_object_get(report, "limits");
    const json_t *lock = json_object_get(limits, "memlock_bytes");
    fprintf(to, "host       %s, Linux %s, %lld CPUs (%lld for this rank), ",
            text(host, "name"), text(host, "kernel"), number(host, "cpus"),
            number(host, "cpus_allowed"));
    fprintf(to, "%.1f GiB\n", gib(limits, "memory_bytes"));
    fprintf(to, "MPI        %s, %lld rank%s\n", text(report, "mpi"),
            number(report, "ranks"), number(report, "ranks") == 1 ? "" : "s");
    if (json_is_null(lock))
        fprintf(to, "limits     lockable memory: all");
    else
        fprintf(to, "limits     lockable memory: %.3f GiB",
                (double)json_integer_value(lock) / (1 << 30));
    fprintf(to, "; /dev/shm: %.3f GiB; io_uring: %s\n",
            gib(limits, "shared_memory_bytes"),
            json_is_true(json_object_get(limits, "io_uring")) ? "yes" : "no");
}

static void print_bandwidth(const json_t *report, FILE *to)
{
    const json_t *all = json_object_get(report, "bandwidth");
    const json_t *disk = json_object_get(all, "disk");
    const json_t *pcie = json_object_get(all, "pcie");
    if (disk)
        fprintf(to, "disk       %s: writes %.0f MB/s, reads %.0f MB/s%s\n",
                text(disk, "folder"), real(disk, "write_mb_s"),
                real(disk, "read_mb_s"),
                json_is_true(json_object_get(disk, "direct"))
                        ? ""
                        : ", by the page cache");
    if (pcie)
        fprintf(to, "PCIe       %.1f GB/s up, %.1f GB/s down\n",
                real(pcie, "up_gb_s"), real(pcie, "down_gb_s"));
}

static void print_devices(const json_t *report, FILE *to)
{
    const json_t *gpus = json_object_get(report, "gpus");
    size_t count = json_array_size(gpus);
    if (count == 0)
        fprintf(to, "GPUs       none: %s\n", text(report, "no_gpu"));
    else
        fprintf(to, "driver     CUDA %lld.%lld; this zerod has %lld.%lld\n",
                number(report, "driver_cuda") / 1000,
                number(report, "driver_cuda") % 1000 / 10,
                number(report, "runtime_cuda") / 1000,
                number(report, "runtime_cuda") % 1000 / 10);
    for (size_t i = 0; i < count; i++) {
        const json_t *gpu = json_array_get(gpus, i);
        fprintf(to, "GPU %-6lld %s, compute capability %s, %.1f GiB, %s",
                number(gpu, "index"), text(gpu, "name"),
                text(gpu, "compute_capability"), gib(gpu, "memory_bytes"),
                text(gpu, "uuid"));
        if (number(gpu, "pcie_lanes"))
            fprintf(to, ", %lld PCIe lanes", number(gpu, "pcie_lanes"));
        fprintf(to, "\n");
    }
    const json_t *libraries = json_object_get(report, "libraries");
    for (size_t i = 0; i < json_array_size(libraries); i++) {
        const json_t *library = json_array_get(libraries, i);
        bool there = *text(library, "path") || *text(library, "version");
        fprintf(to, "%-10s %s%s%s\n", text(library, "name"),
                there ? text(library, "version") : "not there",
                *text(library, "version") ? "  " : "", text(library, "path"));
    }
}

static void print_attention(const json_t *report, FILE *to)
{
    const json_t *list = json_object_get(report, "attention");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pass = json_array_get(list, i);
        const char *why = text(pass, "why");
        fprintf(to, "attention  %s, documents: %s: %s%s%s\n",
                text(pass, "pass"), text(pass, "documents"),
                text(pass, "engine"), *why ? ": " : "", why);
    }
}

static void print_finding(const json_t *finding, FILE *to)
{
    const json_t *rank = json_object_get(finding, "rank");
    bool stops = strcmp(text(finding, "level"), "stop") == 0;
    fprintf(to, "\n%s: ", stops ? "stops the job" : "warning");
    if (*text(finding, "code"))
        fprintf(to, "[%s] ", text(finding, "code"));
    if (rank)
        fprintf(to, "rank %lld: ", (long long)json_integer_value(rank));
    fprintf(to, "%s\n", text(finding, "what"));
    if (!stops)
        fprintf(to, "  costs: %s\n", text(finding, "cost"));
    if (*text(finding, "fix"))
        fprintf(to, "  fix: %s\n", text(finding, "fix"));
}

void doctor_print(const struct doctor *doctor, FILE *to)
{
    const json_t *report = doctor->report;
    const json_t *differences = json_object_get(report, "differences");
    const json_t *findings = json_object_get(report, "findings");
    print_host(report, to);
    print_devices(report, to);
    print_bandwidth(report, to);
    print_attention(report, to);
    for (size_t i = 0; i < json_array_size(differences); i++) {
        const json_t *one = json_array_get(differences, i);
        fprintf(to, "differs    %s: %s on rank 0, %s on rank %lld\n",
                text(one, "what"), text(one, "rank_0"), text(one, "there"),
                number(one, "rank"));
    }
    for (size_t i = 0; i < json_array_size(findings); i++)
        print_finding(json_array_get(findings, i), to);
    if (json_array_size(findings) == 0)
        fprintf(to, "\nzerod can use everything it found\n");
}
