/* The socket in the file system: its name, folder, lock, and end. */
#include "tests/daemon/http/http_case.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[128], lock[160];

static void start(void)
{
    strcpy(folder, "/tmp/zerod-sock-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/zerod/job.sock", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    setenv("XDG_RUNTIME_DIR", folder, 1);
}

static void stop(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(http_socket, .init = start, .fini = stop, .timeout = 100);

static enum zd_status open_at(
        const char *at, bool is_default, struct http_socket *socket)
{
    struct http_options options = {
            .socket_path = at, .is_default_path = is_default, .status_gid = -1};
    *socket = (struct http_socket){.fd = -1, .lock_fd = -1};
    zd_error_clear();
    enum zd_status status = http_socket_open(&options, socket);
    if (status == ZD_OK)
        listen(socket->fd, 1);
    else
        http_socket_close(socket);
    return status;
}

static void expect_refused(const char *code)
{
    struct http_socket socket;
    cr_expect_eq(open_at(path, true, &socket), ZD_ERR_CREATE);
    cr_expect_str_eq(zd_error_get()->code, code);
    cr_expect(strstr(zd_error_get()->what, folder), "%s", zd_error_get()->what);
    cr_expect(
            strstr(zd_error_get()->help, "control.socket") ||
            strstr(zd_error_get()->help, "job.name"));
}

static unsigned mode_of(const char *at)
{
    struct stat info;
    return lstat(at, &info) ? 0 : info.st_mode & 07777;
}

static void parent(char *out, size_t bytes)
{
    snprintf(out, bytes, "%s/zerod", folder);
}

Test(http_socket, the_name_follows_the_job)
{
    char out[256], wanted[64];
    cr_assert_eq(http_socket_path("job", out, sizeof out), ZD_OK);
    cr_expect_str_eq(out, path);
    snprintf(
            wanted, sizeof wanted, "/tmp/zerod-%u/job.sock",
            (unsigned)geteuid());
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert_eq(http_socket_path("job", out, sizeof out), ZD_OK);
    cr_expect_str_eq(out, wanted);
    setenv("XDG_RUNTIME_DIR", "/nowhere/at/all", 1); /* left by another login */
    cr_assert_eq(http_socket_path("job", out, sizeof out), ZD_OK);
    cr_expect_str_eq(out, wanted);
    cr_expect_eq(http_socket_path("../job", out, sizeof out), ZD_ERR_CREATE);
    zd_error_clear();
    cr_expect_eq(http_socket_path("", out, sizeof out), ZD_ERR_CREATE);
}

Test(http_socket, a_path_may_have_107_bytes)
{
    char name[128], out[256];
    size_t room = 107 - strlen(folder) - strlen("/zerod/.sock");
    memset(name, 'n', sizeof name);
    name[room] = '\0';
    cr_expect_eq(http_socket_path(name, out, sizeof out), ZD_OK);
    struct http_socket socket;
    cr_expect_eq(open_at(out, true, &socket), ZD_OK);
    http_socket_close(&socket);
    name[room] = 'n';
    name[room + 1] = '\0';
    cr_expect_eq(http_socket_path(name, out, sizeof out), ZD_ERR_CREATE);
    cr_expect_str_eq(zd_error_get()->code, "E1041");
    cr_expect(strstr(zd_error_get()->help, "control.socket"));
}

Test(http_socket, it_is_made_and_removed)
{
    struct http_socket socket;
    char at[96];
    parent(at, sizeof at);
    mode_t mask = umask(0);
    cr_assert_eq(open_at(path, true, &socket), ZD_OK);
    umask(mask);
    cr_expect_eq(mode_of(path), 0600);
    cr_expect_eq(mode_of(at), 0700);
    http_socket_close(&socket);
    cr_expect_eq(access(path, F_OK), -1);
    cr_expect_eq(access(lock, F_OK), -1);
}

Test(http_socket, a_folder_that_is_open_to_others_is_closed)
{
    struct http_socket socket;
    char at[96];
    parent(at, sizeof at);
    mkdir(at, 0700);
    chmod(at, 0777);
    cr_assert_eq(open_at(path, true, &socket), ZD_OK);
    cr_expect_eq(mode_of(at) & 0027, 0);
    http_socket_close(&socket);
}

/* What stands in the place of the folder, the socket or the lock is refused,
 * and stays as it is. */
Test(http_socket, what_is_not_ours_is_refused_and_not_removed)
{
    char parent_path[96];
    const struct {
        char kind; /* a link, a file, a folder, another user's folder */
        const char *at, *code;
    } cases[] = {{'l', parent_path, "E1042"}, {'u', parent_path, "E1042"},
                 {'l', path, "E1043"},        {'f', path, "E1043"},
                 {'d', path, "E1043"},        {'l', lock, "E1044"}};
    parent(parent_path, sizeof parent_path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = cases[i].at;
        struct stat before, after;
        if (at != parent_path)
            mkdir(parent_path, 0700);
        if (cases[i].kind == 'l')
            cr_assert_eq(symlink("/tmp/elsewhere", at), 0);
        else if (cases[i].kind == 'f')
            close(open(at, O_CREAT | O_WRONLY, 0600));
        else
            mkdir(at, 0700);
        if (cases[i].kind == 'u' && (geteuid() || chown(at, 65534, 65534))) {
            rmdir(at); /* another user can be played by root alone */
            continue;
        }
        cr_assert_eq(lstat(at, &before), 0);
        expect_refused(cases[i].code);
        cr_expect(
                !lstat(at, &after) && before.st_ino == after.st_ino,
                "case %zu has gone", i);
        cr_expect_eq(access("/tmp/elsewhere", F_OK), -1);
        remove(at);
    }
}

Test(http_socket, a_dead_one_is_replaced)
{
    struct http_socket socket;
    pid_t pid = fork();
    if (!pid) {
        open_at(path, true, &socket);
        _exit(0); /* as one that was killed: both files stay */
    }
    waitpid(pid, NULL, 0);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_eq(access(lock, F_OK), 0);
    cr_expect_eq(open_at(path, true, &socket), ZD_OK);
    http_socket_close(&socket);
    cr_expect_eq(access(path, F_OK), -1);
}

Test(http_socket, a_live_one_is_refused_and_its_pid_told)
{
    struct http_socket socket, second;
    char pid[32];
    cr_assert_eq(open_at(path, true, &socket), ZD_OK);
    snprintf(pid, sizeof pid, "pid %d ", (int)getpid());
    cr_expect_eq(open_at(path, true, &second), ZD_ERR_CREATE);
    cr_expect_str_eq(zd_error_get()->code, "E1040");
    cr_expect(strstr(zd_error_get()->what, pid), "%s", zd_error_get()->what);
    cr_expect_eq(zd_exit_code(ZD_ERR_CREATE), 73);
    cr_expect_eq(access(path, F_OK), 0, "the live one's socket has gone");
    unlink(lock); /* removed by hand: the socket itself still answers */
    cr_expect_eq(open_at(path, true, &second), ZD_ERR_CREATE);
    cr_expect_str_eq(zd_error_get()->code, "E1040");
    cr_expect(strstr(zd_error_get()->what, pid), "%s", zd_error_get()->what);
    http_socket_close(&socket);
}

Test(http_socket, one_that_another_server_replaced_is_not_removed)
{
    struct http_socket socket, second;
    cr_assert_eq(open_at(path, true, &socket), ZD_OK);
    unlink(path);
    unlink(lock);
    cr_assert_eq(open_at(path, true, &second), ZD_OK);
    http_socket_close(&socket);
    cr_expect_eq(access(path, F_OK), 0);
    cr_expect_eq(access(lock, F_OK), 0);
    http_socket_close(&second);
}

Test(http_socket, a_path_of_its_own_needs_its_folder)
{
    struct http_socket socket;
    char own[128];
    snprintf(own, sizeof own, "%s/my.sock", folder);
    cr_expect_eq(open_at(own, false, &socket), ZD_OK);
    cr_expect_eq(mode_of(own), 0600);
    http_socket_close(&socket);
    snprintf(own, sizeof own, "%s/no/my.sock", folder);
    cr_expect_eq(open_at(own, false, &socket), ZD_ERR_CREATE);
    cr_expect_str_eq(zd_error_get()->code, "E1044");
}

/* Starts at one moment: one wins, each time, over fresh and over dead files. */
Test(http_socket, of_many_starts_one_wins)
{
    for (int round = 0; round < 20; round++) {
        int go[2], held[2], wins = 0;
        char byte;
        pid_t pids[8];
        cr_assert(!pipe(go) && !pipe(held));
        for (int i = 0; i < 8; i++) {
            if ((pids[i] = fork()))
                continue;
            struct http_socket socket;
            close(go[1]);
            close(held[1]);
            (void)!read(go[0], &byte, 1); /* until all may */
            bool has_won = open_at(path, true, &socket) == ZD_OK;
            if (has_won)
                (void)!read(held[0], &byte, 1); /* until all have tried */
            _exit(has_won);                     /* its files stay: dead ones */
        }
        close(go[0]);
        close(go[1]);
        close(held[0]);
        for (int i = 0; i < 8; i++) { /* the losers end at once */
            int status;
            if (i == 7)
                close(held[1]);
            wins += waitpid(-1, &status, 0) > 0 && WEXITSTATUS(status) == 1;
        }
        cr_assert_eq(wins, 1, "%d won in round %d", wins, round);
    }
}
