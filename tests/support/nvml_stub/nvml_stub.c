/* A stand-in for libnvidia-ml.so.1 that the tests compile and steer.
 *
 * The file named by NVML_STUB_STATE holds one fact a line ("lost 1", "throttle 0 0x44"); it is read again at every
 * call, so a test can lose a GPU under a running reader. Built with -DOLD_DRIVER it lacks what drivers before 2022
 * lacked. Structures follow the NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 18,
    UNKNOWN = 999,
};

#define GPUS 2
#define MIG_BASE 100

typedef struct { int index; } Device;

static Device devices[GPUS] = {{0}, {1}};
static int started = 0;
static int lost_until_restart[GPUS] = {0, 0};

/* The n-th line "key index ..." of the state file; fills value with the rest. Returns 1 when found. */
static int fact(const char *key, int index, int n, char *value, size_t size) {
    const char *path = getenv("NVML_STUB_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        char name[64], rest[128] = "";
        int which = -1;
        if (sscanf(line, "%63s %d %127[^\n]", name, &which, rest) < 2) continue;
        if (strcmp(name, key) != 0 || which != index) continue;
        if (n-- > 0) continue;
        if (value) snprintf(value, size, "%s", rest);
        found = 1;
    }
    fclose(file);
    return found;
}

static unsigned long long number(const char *key, int index, unsigned long long otherwise) {
    char value[128];
    return fact(key, index, 0, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

/* What every call on a device checks first. */
static int check(const Device *device, int optional) {
    int index = device->index;
    unsigned long long stall_ms;
    if (!started) return UNINITIALIZED;
    if (index >= MIG_BASE) return OK;
    stall_ms = number("stall", index, 0);
    if (stall_ms) usleep((useconds_t)(stall_ms * 1000));
    if (fact("lost", index, 0, NULL, 0)) lost_until_restart[index] = 1;
    if (lost_until_restart[index]) return GPU_IS_LOST;
    if (fact("unknown", index, 0, NULL, 0)) return UNKNOWN;
    if (optional && fact("unsupported", index, 0, NULL, 0)) return NOT_SUPPORTED;
    return OK;
}

#define CHECKED(device, optional) do { int code = check(device, optional); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (number("not_loaded", 0, 0)) return DRIVER_NOT_LOADED;
    if (number("mismatch", 0, 0)) return VERSION_MISMATCH;
    started = 1;
    return OK;
}

int nvmlShutdown(void) {
    started = 0;
    memset(lost_until_restart, 0, sizeof lost_until_restart);
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "stub error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.95.05");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number("count", 0, GPUS);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    CHECKED(&devices[index], 0);
    *device = &devices[index];
    return OK;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    CHECKED(device, 0);
    if (device->index >= MIG_BASE) snprintf(text, size, "Stub GeForce MIG 1g.%dgb", 10 * (device->index - MIG_BASE + 1));
    else snprintf(text, size, "Stub GeForce %d", device->index);
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    CHECKED(device, 0);
    snprintf(text, size, "%s-0000-%d", device->index >= MIG_BASE ? "MIG" : "GPU", device->index);
    return OK;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    CHECKED(device, 0);
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 10 + device->index);
    return OK;
}

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

#define TOTAL 24000000000ULL
#define RESERVED 400000000ULL
#define USED 6000000000ULL

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    CHECKED(device, 1);
    memory->total = TOTAL;
    memory->used = USED + RESERVED;
    memory->free = TOTAL - memory->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
    CHECKED(device, 1);
    rates[0] = 73;
    rates[1] = 41;
    return OK;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *value) {
    CHECKED(device, 1);
    (void)sensor;
    *value = 61;
    return OK;
}

int nvmlDeviceGetTemperatureThreshold(Device *device, int kind, unsigned *value) {
    CHECKED(device, 1);
    if (device->index == 1) return NOT_SUPPORTED; /* as cards do that tell a margin instead */
    *value = kind == 3 ? 83 : 93;
    return OK;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    CHECKED(device, 1);
    *milliwatts = 212500;
    return OK;
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    CHECKED(device, 1);
    *milliwatts = 350000;
    return OK;
}

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *mhz) {
    CHECKED(device, 1);
    *mhz = kind == 2 ? 9501 : 1740;
    return OK;
}

int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *mhz) {
    CHECKED(device, 1);
    *mhz = kind == 2 ? 9751 : 2100;
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *mask) {
    CHECKED(device, 1);
    *mask = number("throttle", device->index, 0);
    return OK;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;

static int processes(Device *device, const char *kind, unsigned *count, Process *list) {
    unsigned n = 0;
    char value[128];
    CHECKED(device, 1);
    while (fact(kind, device->index, (int)n, value, sizeof value)) {
        if (list && n < *count) {
            char *end;
            list[n].pid = (unsigned)strtoul(value, &end, 0);
            list[n].memory = strstr(end, "hidden") ? ~0ULL : strtoull(end, NULL, 0);
        }
        n++;
    }
    if (n == 0) { *count = 0; return OK; }
    if (!list || *count < n) { *count = n; return INSUFFICIENT_SIZE; }
    *count = n;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, Process *list) {
    return processes(device, "compute", count, list);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Device *device, unsigned *count, Process *list) {
    return processes(device, "graphics", count, list);
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    int value_type, code;
    union { double number; unsigned whole; unsigned long long large; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    CHECKED(device, 1);
    for (int i = 0; i < count; i++) {
        values[i].code = values[i].field == 82 && device->index == 0 ? OK : NOT_SUPPORTED;
        values[i].value.whole = 78;
    }
    return OK;
}

#ifdef OLD_DRIVER

int nvmlDeviceGetFanSpeed(Device *device, unsigned *percent) {
    CHECKED(device, 1);
    *percent = 38;
    return OK;
}

#else

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    CHECKED(device, 1);
    if (memory->version != 0x02000028) return INVALID_ARGUMENT;
    memory->total = device->index >= MIG_BASE ? 10000000000ULL : TOTAL;
    memory->reserved = RESERVED;
    memory->used = USED;
    memory->free = memory->total - USED - RESERVED;
    return OK;
}

typedef struct { unsigned version; int sensor; int value; } TemperatureV;

int nvmlDeviceGetTemperatureV(Device *device, TemperatureV *temperature) {
    CHECKED(device, 1);
    temperature->value = 64;
    return OK;
}

typedef struct { unsigned version; int value; } Margin;

int nvmlDeviceGetMarginTemperature(Device *device, Margin *margin) {
    CHECKED(device, 1);
    margin->value = 26;
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, mask);
}

int nvmlDeviceGetNumFans(Device *device, unsigned *count) {
    CHECKED(device, 1);
    if (fact("unknown_fan", device->index, 0, NULL, 0)) return UNKNOWN;
    *count = 2;
    return OK;
}

int nvmlDeviceGetFanSpeed_v2(Device *device, unsigned fan, unsigned *percent) {
    CHECKED(device, 1);
    *percent = fan == 0 ? 40 : 55;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
    return processes(device, "compute", count, list);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
    return processes(device, "graphics", count, list);
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    CHECKED(device, 1);
    *current = *pending = fact("mig", device->index, 0, NULL, 0) ? 1 : 0;
    return OK;
}

static Device slices[2] = {{MIG_BASE}, {MIG_BASE + 1}};

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    CHECKED(device, 1);
    *count = 2;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    CHECKED(device, 1);
    if (index >= 2) return INVALID_ARGUMENT;
    *slice = &slices[index];
    return OK;
}

#endif
