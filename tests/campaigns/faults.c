/* A file system that fails, for the campaigns: loaded before the C library, it counts what changes files below a
   folder, and at one of these operations returns an error or ends the process. `_faults.py` compiles and arms it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, FAIL_ONCE, FAIL_FROM, REFUSE_FROM, DIE };
enum { CONTENT, NAME };

static char prefix[4096];
static size_t prefix_length;
static int mode, code;
static long at, seen;
static char tracked[1 << 16];

void faults_arm(const char* folder, int how, long when, int error) {
    strncpy(prefix, folder, sizeof prefix - 1);
    prefix_length = strlen(prefix);
    mode = how, code = error, at = when;
    __atomic_store_n(&seen, 0, __ATOMIC_SEQ_CST);
}

long faults_seen(void) { return __atomic_load_n(&seen, __ATOMIC_SEQ_CST); }

static int below(int folder, const char* path) {
    if (!prefix_length || !path) return 0;
    if (folder != AT_FDCWD && path[0] != '/') return folder >= 0 && folder < (int)sizeof tracked && tracked[folder];
    if (path[0] == '/') return !strncmp(path, prefix, prefix_length);
    char here[4096]; /* a relative path */
    return getcwd(here, sizeof here) && !strncmp(here, prefix, prefix_length);
}

/* Returns 1 if the operation must fail; 2 if the process must end, after half of a write. */
static int strikes(int kind) {
    if (!prefix_length) return 0;
    long number = __atomic_fetch_add(&seen, 1, __ATOMIC_SEQ_CST);
    if (mode == COUNT || number < at) return 0;
    if (mode == DIE) return number == at ? 2 : 0;
    if (mode == FAIL_ONCE && number != at) return 0;
    if (mode == REFUSE_FROM && kind == CONTENT) return 0; /* who has a file open may write to it */
    errno = code;
    return 1;
}

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define NEXT(name)                                                                                                     \
    static __typeof__(name)* next;                                                                                     \
    if (!next) next = (__typeof__(name)*)dlsym(RTLD_NEXT, #name);

#define GUARD(kind)                                                                                                    \
    switch (strikes(kind)) {                                                                                           \
    case 1: return -1;                                                                                                 \
    case 2: end();                                                                                                     \
    }

#define IS_TRACKED(fd) ((fd) >= 0 && (fd) < (int)sizeof tracked && tracked[fd])

static int opened(int fd, int folder, const char* path) {
    if (fd >= 0 && fd < (int)sizeof tracked) tracked[fd] = below(folder, path);
    return fd;
}

static int makes(int flags) { return flags & (O_CREAT | O_TRUNC); }

#define OPEN(name, folder, parameters, arguments)                                                                      \
    int name parameters {                                                                                              \
        NEXT(name)                                                                                                     \
        mode_t access = 0;                                                                                             \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list list;                                                                                              \
            va_start(list, flags);                                                                                     \
            access = va_arg(list, mode_t);                                                                             \
            va_end(list);                                                                                              \
        }                                                                                                              \
        if (makes(flags) && below(folder, path)) {                                                                     \
            GUARD(NAME)                                                                                                \
        }                                                                                                              \
        return opened(next arguments, folder, path);                                                                   \
    }
OPEN(open, AT_FDCWD, (const char* path, int flags, ...), (path, flags, access))
OPEN(open64, AT_FDCWD, (const char* path, int flags, ...), (path, flags, access))
OPEN(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, access))
OPEN(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, access))

int close(int fd) {
    NEXT(close)
    if (fd >= 0 && fd < (int)sizeof tracked) tracked[fd] = 0;
    return next(fd);
}

int dup(int fd) {
    NEXT(dup)
    int copy = next(fd);
    if (copy >= 0 && copy < (int)sizeof tracked) tracked[copy] = IS_TRACKED(fd);
    return copy;
}

ssize_t write(int fd, const void* data, size_t size) {
    NEXT(write)
    if (IS_TRACKED(fd)) switch (strikes(CONTENT)) {
        case 1: return -1;
        case 2: next(fd, data, size / 2), end();
        }
    return next(fd, data, size);
}

#define PWRITE(name, offset_type)                                                                                      \
    ssize_t name(int fd, const void* data, size_t size, offset_type offset) {                                          \
        NEXT(name)                                                                                                     \
        if (IS_TRACKED(fd)) switch (strikes(CONTENT)) {                                                                \
            case 1: return -1;                                                                                         \
            case 2: next(fd, data, size / 2, offset), end();                                                           \
            }                                                                                                          \
        return next(fd, data, size, offset);                                                                           \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec* parts, int n) {
    NEXT(writev)
    if (IS_TRACKED(fd)) GUARD(CONTENT)
    return next(fd, parts, n);
}

#define ON_FD(name, parameters, arguments)                                                                             \
    int name parameters {                                                                                              \
        NEXT(name)                                                                                                     \
        if (IS_TRACKED(fd)) GUARD(CONTENT)                                                                             \
        return next arguments;                                                                                         \
    }
ON_FD(fsync, (int fd), (fd))
ON_FD(fdatasync, (int fd), (fd))
ON_FD(ftruncate, (int fd, off_t size), (fd, size))
ON_FD(ftruncate64, (int fd, off64_t size), (fd, size))

#define ON_NAME(name, folder, path, parameters, arguments)                                                             \
    int name parameters {                                                                                              \
        NEXT(name)                                                                                                     \
        if (below(folder, path)) GUARD(NAME)                                                                           \
        return next arguments;                                                                                         \
    }
ON_NAME(rename, AT_FDCWD, target, (const char* source, const char* target), (source, target))
ON_NAME(renameat, to, target, (int from, const char* source, int to, const char* target), (from, source, to, target))
ON_NAME(renameat2, to, target, (int from, const char* source, int to, const char* target, unsigned flags),
        (from, source, to, target, flags))
ON_NAME(mkdir, AT_FDCWD, path, (const char* path, mode_t access), (path, access))
ON_NAME(mkdirat, folder, path, (int folder, const char* path, mode_t access), (folder, path, access))
ON_NAME(symlink, AT_FDCWD, path, (const char* target, const char* path), (target, path))

/* Where names cannot be changed, they cannot be removed; a full disk does not hinder that. */
#define REMOVES(name, folder, parameters, arguments)                                                                   \
    int name parameters {                                                                                              \
        NEXT(name)                                                                                                     \
        if ((mode == REFUSE_FROM || mode == DIE || mode == COUNT) && below(folder, path)) GUARD(NAME)                  \
        return next arguments;                                                                                         \
    }
REMOVES(unlink, AT_FDCWD, (const char* path), (path))
REMOVES(unlinkat, folder, (int folder, const char* path, int flags), (folder, path, flags))
REMOVES(rmdir, AT_FDCWD, (const char* path), (path))
