/* command_bench.c - zerod bench: what this machine can do. */
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "train/plan/machine.h"

static double giga(double value)
{
    return value / 1e9;
}

static void print_text(
        const struct plan_calibration *calibration, const char *path)
{
    static const char *const states[] = {"fp32", "bf16", "8-bit"};
    const struct plan_machine *machine = &calibration->machine;
    OUTPUT(stream);
    fprintf(stream, "%s\n", calibration->what);
    for (int i = 0; i < 2; i++)
        fprintf(stream, "%s matmuls: %.1f GFLOP/s, half of it with %.0f rows\n",
                i ? "fp32" : "bf16", giga(machine->products[i]),
                machine->half[i]);
    for (int i = 0; i < 2; i++)
        if (machine->fp8[i] > 0)
            fprintf(stream, "%s FP8 matmuls: %.2f of the rate of bf16\n",
                    i ? "blockwise" : "tensorwise", machine->fp8[i]);
    for (int kind = 0; kind < PLAN_UPDATES; kind++)
        fprintf(stream,
                "updates with %s states, %s masters: %.1f GB/s, on the host "
                "%.1f\n",
                states[kind / 2], kind % 2 ? "no" : "fp32",
                giga(machine->update[kind]), giga(machine->host[kind]));
    fprintf(stream,
            "GB/s: element-wise %.1f, host and device %.1f, disk %.2f\n",
            giga(machine->memory), giga(machine->link), giga(machine->disk));
    if (machine->wire_is_measured)
        fprintf(stream,
                "wire: %.1f us, %.2f GB/s within a host, %.2f between; the "
                "slowest rank makes a step %.1f %% longer for each doubling of "
                "the ranks\n",
                1e6 * machine->latency, giga(machine->inside),
                giga(machine->between), 100 * machine->jitter);
    else
        fputs("wire: one rank has none; mpirun -np N zerod bench calibrate "
              "measures it\n",
              stream);
    fprintf(stream, "kept in %s\n", path);
}

static enum zd_status tell(
        const struct cli_args *args, const struct plan_calibration *calibration)
{
    char path[PATH_MAX];
    ZD_TRY(calibration_keep(calibration, path));
    if (!cli_wants_json(args)) {
        print_text(calibration, path);
        return ZD_OK;
    }
    json_auto_t *json = calibration_json(calibration);
    json_object_set_new(json, "file", json_string(path));
    output_json(json);
    return ZD_OK;
}

static enum zd_status calibrate(
        const struct cli_args *args, struct comm *comm,
        struct plan_calibration *out)
{
    struct device_options device = device_options_default();
    struct comm *wire = NULL;
    struct device *gpu = NULL;
    int local = comm_local_size(comm);
    device.cpu_threads = (int)args->threads;
    int threads = device_threads(
            &device, device_affinity_cpus(), device_online_cpus(), local);
    enum zd_status status = device_open(
            device_resolve(device.backend), comm_local_rank(comm), local, &gpu);
    status = comm_agree(comm, status);
    if (status == ZD_OK) {
        const struct comm_options options = train_job_default().comm;
        device_use(gpu);
        status = comm_device_create(comm, &options, &wire);
    }
    ZD_THEN(status, calibration_measure(wire, args->seconds, threads, out));
    if (wire && wire != comm)
        comm_destroy(wire);
    device_close(gpu);
    return status;
}

enum zd_status command_bench_calibrate(struct cli_args *args)
{
    struct comm *comm;
    struct plan_calibration calibration;
    const struct comm_options options = train_job_default().comm;
    ZD_TRY(cli_join(args, &options, &comm));
    comm_work(comm, WORK_COMMAND);
    enum zd_status status = calibrate(args, comm, &calibration);
    if (status == ZD_OK && comm_rank(comm) == 0)
        status = tell(args, &calibration);
    status = comm_agree(comm, status);
    cli_part(comm);
    return status;
}
