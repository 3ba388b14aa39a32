/* print.c - the report as text: templates, filled from its objects. */
#include "daemon/doctor/doctor.h"

#include "daemon/cli/fill.h"

#include <stdlib.h>
#include <string.h>

static const struct look plain = {.has_utf8 = true};

static void print_each(const json_t *list, const char *template, FILE *to)
{
    json_t *one;
    size_t i;
    json_array_foreach(list, i, one) fill_print(&plain, one, template, to);
}

static void print_gpus(const json_t *report, FILE *to)
{
    int driver = (int)fill_number(report, "driver_cuda"),
        runtime = (int)fill_number(report, "runtime_cuda");
    const json_t *gpus = json_object_get(report, "gpus");
    if (json_array_size(gpus) == 0)
        fill_print(&plain, report, "GPUs       none: {no_gpu|s}\n", to);
    else
        fprintf(to, "driver     CUDA %d.%d; this zerod has %d.%d\n",
                driver / 1000, driver % 1000 / 10, runtime / 1000,
                runtime % 1000 / 10);
    print_each(
            gpus,
            "GPU {index|w}      {name|s}, compute capability "
            "{compute_capability|s}, {memory_bytes|b}, {uuid|s}\n",
            to);
}

static void print_libraries(const json_t *report, FILE *to)
{
    json_t *library;
    size_t i;
    json_array_foreach(json_object_get(report, "libraries"), i, library)
    {
        char *text = fill(&plain, library, "[{version|s}  ][{path|s}]");
        fprintf(to, "%-10s %s\n", json_text_of(library, "name", ""),
                text[0] ? text : "not there");
        free(text);
    }
}

/* Help may have several lines. */
static void print_fix(const char *fix, FILE *to)
{
    for (const char *lead = "  fix: "; *fix; lead = "       ") {
        size_t bytes = strcspn(fix, "\n");
        char *line = text_escape(&plain, fix, bytes, false);
        fprintf(to, "%s%s\n", lead, line);
        free(line);
        fix += bytes + (fix[bytes] == '\n');
    }
}

static void print_finding(const json_t *finding, FILE *to)
{
    const char *code = json_text_of(finding, "code", "");
    bool stops = strcmp(json_text_of(finding, "level", ""), "stop") == 0;
    fprintf(to, "\n%s: ", stops ? "stops the job" : "warning");
    if (code[0])
        fprintf(to, "[%s] ", code);
    fill_print(
            &plain, finding,
            stops ? "[rank {rank|w}: ]{what|s}\n"
                  : "[rank {rank|w}: ]{what|s}\n  costs: {cost|s}\n",
            to);
    print_fix(json_text_of(finding, "fix", ""), to);
}

void doctor_print(const struct doctor *doctor, FILE *to)
{
    const json_t *report = doctor->report;
    const json_t *findings = json_object_get(report, "findings");
    json_t *finding;
    size_t i;
    fill_print(
            &plain, report,
            "host       {host.name|s}, Linux {host.kernel|s}, {host.cpus|w} "
            "CPUs ({host.cpus_allowed|w} for this rank), "
            "{limits.memory_bytes|b}\n"
            "MPI        {mpi|s}, {ranks|w} rank{ranks|p}\n"
            "limits     lockable memory: "
            "[{limits.memlock_bytes|b}][{limits.memlock_bytes|!}all]; "
            "/dev/shm: {limits.shared_memory_bytes|b}\n",
            to);
    print_gpus(report, to);
    print_libraries(report, to);
    print_each(
            json_object_get(report, "attention"),
            "attention  {pass|s}, documents: {documents|s}[, window "
            "{window|w}]: {engine|s}[: {why|s}]\n",
            to);
    print_each(
            json_object_get(report, "differences"),
            "differs    {what|s}: {rank_0|s} on rank 0, {there|s} on rank "
            "{rank|w}\n",
            to);
    json_array_foreach(findings, i, finding) print_finding(finding, to);
    if (json_array_size(findings) == 0)
        fprintf(to, "\nzerod can use everything it found\n");
    if (doctor->has_job)
        fputs(doctor_stops(doctor)
                      ? "\nthe job would not start\n"
                      : "\nnothing here stops the job; `zerod validate` checks "
                        "its data\n",
              to);
}
