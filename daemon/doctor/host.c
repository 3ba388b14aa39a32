/* host.c - the machine without its GPUs: memory that may be locked, shared
 * memory, how fast a disk is, MPI. */
#include "daemon/doctor/doctor.h"

#include "base/clock.h"
#include "base/file/fs.h"
#include "base/must.h"
#include "offload/aio.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

enum { MIB = 1 << 20, TRIAL_BYTES = 128 * MIB, BLOCK = 8 * MIB };

static void see_memory(struct doctor *doctor, json_t *limits)
{
    struct rlimit lock;
    getrlimit(RLIMIT_MEMLOCK, &lock);
    bool unlimited = lock.rlim_cur == RLIM_INFINITY;
    json_object_set_new(
            limits, "memlock_bytes",
            unlimited ? json_null() : json_integer((json_int_t)lock.rlim_cur));
    json_object_set_new(
            limits, "memory_bytes",
            json_integer((json_int_t)device_system_memory()));
    if (!unlimited && lock.rlim_cur < 64 * MIB)
        doctor_warn(
                doctor, "InfiniBand does not work",
                "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
                "only %" PRIu64 " KiB of memory may be locked",
                (uint64_t)lock.rlim_cur / 1024);
}

static void see_shared(struct doctor *doctor, json_t *limits)
{
    struct statvfs at;
    if (statvfs("/dev/shm", &at) != 0) {
        doctor_warn(
                doctor,
                "MPI and NCCL pass messages between ranks of this host "
                "by slower ways",
                "mount a tmpfs at /dev/shm", "there is no /dev/shm");
        return;
    }
    uint64_t bytes = (uint64_t)at.f_bavail * at.f_frsize;
    json_object_set_new(
            limits, "shared_memory_bytes", json_integer((json_int_t)bytes));
    if (bytes < 512 * (uint64_t)MIB)
        doctor_warn(
                doctor,
                "ranks of one host may end with SIGBUS, or NCCL with `No space "
                "left on device`",
                "docker run --shm-size=8g, or a larger tmpfs at /dev/shm",
                "/dev/shm has room for %" PRIu64 " MiB", bytes / MIB);
}

/* --- the disk ------------------------------------------------------------- */

/* MB/s; 0: it failed. */
static double move_all(const struct aio_file *file, char *memory, bool is_write)
{
    double began = clock_seconds();
    for (uint64_t at = 0; at < TRIAL_BYTES; at += BLOCK)
        if (is_write ? fs_pwrite(file->fd, file->path, memory, BLOCK, at)
                     : fs_pread(file->fd, file->path, memory, BLOCK, at))
            return 0;
    return TRIAL_BYTES / 1e6 / (clock_seconds() - began);
}

/* Where states would be streamed to, else where the job writes, else here. */
static const char *disk_of(const struct doctor *doctor)
{
    const struct train_job *job = doctor->job;
    if (doctor->has_job && job->offload.nvme_path)
        return job->offload.nvme_path;
    return doctor->has_job && fs_is_dir(job->job.output_dir)
                   ? job->job.output_dir
                   : ".";
}

static void measure_disk(struct doctor *doctor, json_t *bandwidth)
{
    struct aio_file file;
    const char *folder = disk_of(doctor);
    if (aio_file_create(&file, folder, "zerod-doctor", TRIAL_BYTES, true) !=
        ZD_OK) {
        if (doctor->has_job && doctor->job->offload.nvme_path)
            doctor_stop(doctor);
        zd_error_clear();
        return;
    }
    char *memory = zd_must(aligned_alloc(AIO_ALIGN, BLOCK));
    memset(memory, 1, BLOCK);
    double written = move_all(&file, memory, true);
    double read = move_all(&file, memory, false);
    json_object_set_new(
            bandwidth, "disk",
            json_pack(
                    "{s:s, s:b, s:f, s:f}", "folder", folder, "direct",
                    file.is_direct, "write_mb_s", written, "read_mb_s", read));
    zd_error_clear();
    aio_file_close(&file);
    free(memory);
}

void doctor_host(struct doctor *doctor)
{
    struct utsname name;
    char mpi[128];
    json_t *limits = json_object(), *bandwidth = json_object();
    uname(&name);
    comm_mpi_library(mpi, sizeof mpi);
    doctor_put(
            doctor, "host",
            json_pack(
                    "{s:s, s:s, s:i, s:i}", "name", name.nodename, "kernel",
                    name.release, "cpus", device_online_cpus(), "cpus_allowed",
                    device_affinity_cpus()));
    doctor_put(doctor, "mpi", json_string(mpi));
    doctor_put(doctor, "limits", limits);
    doctor_put(doctor, "bandwidth", bandwidth);
    see_memory(doctor, limits);
    see_shared(doctor, limits);
    measure_disk(doctor, bandwidth);
}
