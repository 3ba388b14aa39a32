/* host.c - what is put into the report, and the machine without its GPUs:
 * memory that may be locked, shared memory, MPI. */
#include "daemon/doctor/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

void doctor_put(struct doctor *doctor, const char *name, json_t *value)
{
    json_object_set_new(doctor->report, name, value);
}

static void add_finding(struct doctor *doctor, json_t *finding)
{
    json_array_append_new(json_object_get(doctor->report, "findings"), finding);
}

void doctor_warn(
        struct doctor *doctor, const char *cost, const char *fix,
        const char *format, ...)
{
    char what[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    add_finding(
            doctor, json_pack(
                            "{s:s, s:s, s:s, s:s}", "level", "warning", "what",
                            what, "cost", cost, "fix", fix));
}

void doctor_stop(struct doctor *doctor)
{
    const struct zd_error *error = zd_error_get();
    const char *where = error->where;
    add_finding(
            doctor,
            json_pack(
                    "{s:s, s:s, s:o, s:s, s:s}", "level", "stop", "code",
                    error->code, "what",
                    json_sprintf(
                            "%s%s%s", where, where[0] ? ": " : "", error->what),
                    "cost", "the job ends before its first step", "fix",
                    error->help));
    zd_error_clear();
}

/* --- the machine ---------------------------------------------------------- */

enum { MIB = 1 << 20 };

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

void doctor_host(struct doctor *doctor)
{
    struct utsname name;
    char mpi[128];
    json_t *limits = json_object();
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
    see_memory(doctor, limits);
    see_shared(doctor, limits);
}
