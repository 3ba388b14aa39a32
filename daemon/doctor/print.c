/* print.c - the report as text: templates, filled from its objects. */
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

static void print_each(
        const struct look *look, const json_t *list, const char *template)
{
    JSON_EACH(one, list)
        fill_print(look, one, template);
}

static void print_gpus(const struct look *look, const json_t *report)
{
    int driver = (int)fill_number(report, "driver_cuda"),
        runtime = (int)fill_number(report, "runtime_cuda");
    const json_t *gpus = json_object_get(report, "gpus");
    if (json_array_size(gpus) == 0)
        fill_print(look, report, "GPUs       none: {no_gpu|s}\n");
    else
        fprintf(look->out, "driver     CUDA %d.%d; this zerod has %d.%d\n",
                driver / 1000, driver % 1000 / 10, runtime / 1000,
                runtime % 1000 / 10);
    print_each(
            look, gpus,
            "GPU {index|w}      {name|s}, compute capability "
            "{compute_capability|s}, {memory_bytes|b}, {uuid|s}\n");
}

static void print_libraries(const struct look *look, const json_t *list)
{
    JSON_EACH(library, list) {
        ZD_FREED char *text = fill(look, library, "[{version|s}  ][{path|s}]");
        fprintf(look->out, "%-10s %s\n", json_text_of(library, "name", ""),
                text[0] ? text : "not there");
    }
}

/* Help may have several lines. */
static void print_fix(const struct look *look, const char *fix)
{
    for (const char *lead = "  fix: "; *fix; lead = "       ") {
        size_t bytes = strcspn(fix, "\n");
        ZD_FREED char *line = text_escape(look, fix, bytes, false);
        fprintf(look->out, "%s%s\n", lead, line);
        fix += bytes + (fix[bytes] == '\n');
    }
}

static void print_finding(const struct look *look, const json_t *finding)
{
    bool stops = strcmp(json_text_of(finding, "level", ""), "stop") == 0;
    const char *code = json_text_of(finding, "code", "");
    fprintf(look->out, "\n%s: %s%s%s", stops ? "stops the job" : "warning",
            code[0] ? "[" : "", code, code[0] ? "] " : "");
    fill_print(
            look, finding,
            stops ? "[rank {rank|w}: ]{what|s}\n"
                  : "[rank {rank|w}: ]{what|s}\n  costs: {cost|s}\n");
    print_fix(look, json_text_of(finding, "fix", ""));
}

void doctor_print(const struct doctor *doctor, FILE *to)
{
    const struct look look = {.out = to, .has_utf8 = true};
    const json_t *report = doctor->report;
    const json_t *findings = json_object_get(report, "findings");
    fill_print(
            &look, report,
            "host       {host.name|s}, Linux {host.kernel|s}, {host.cpus|w} "
            "CPUs ({host.cpus_allowed|w} for this rank), "
            "{limits.memory_bytes|b}\n"
            "MPI        {mpi|s}, {ranks|w} rank{ranks|p}\n"
            "limits     lockable memory: "
            "[{limits.memlock_bytes|b}][{limits.memlock_bytes|!}all]; "
            "/dev/shm: {limits.shared_memory_bytes|b}\n");
    print_gpus(&look, report);
    print_libraries(&look, json_object_get(report, "libraries"));
    print_each(
            &look, json_object_get(report, "attention"),
            "attention  {pass|s}, documents: {documents|s}[, window "
            "{window|w}]: {engine|s}[: {why|s}]\n");
    print_each(
            &look, json_object_get(report, "differences"),
            "differs    {what|s}: {rank_0|s} on rank 0, {there|s} on rank "
            "{rank|w}\n");
    JSON_EACH(finding, findings)
        print_finding(&look, finding);
    if (json_array_size(findings) == 0)
        fprintf(to, "\nzerod can use everything it found\n");
    if (doctor->has_job)
        fputs(doctor_stops(doctor)
                      ? "\nthe job would not start\n"
                      : "\nnothing here stops the job; `zerod validate` checks "
                        "its data\n",
              to);
}
