/* NVML's library, devices and readings. */

#include "standin.h"

#include <stdio.h>
#include <string.h>

int nvmlInitWithFlags(uint flags)
{
    (void)flags;
    return start_session();
}

int nvmlShutdown(void)
{
    return end_session();
}

const char *nvmlErrorString(int code)
{
    static char text[32];
    snprintf(text, sizeof text, "error %d", code);
    return text;
}

int nvmlDeviceGetCount_v2(uint *count)
{
    ENTER(-1);
    *count = gpu_count;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, struct device **device)
{
    ENTER((int)index);
    *device = &whole[index];
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct device **device)
{
    load();
    for (int i = 0; i < gpu_count; i++)
        if (!strcmp(gpus[i].bus_id, bus_id)) {
            ENTER(i);
            *device = &whole[i];
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(struct device *device, char *name, uint length)
{
    ENTER(device->gpu);
    snprintf(name, length, "%s", gpus[device->gpu].name);
    return OK;
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, uint length)
{
    ENTER(device->gpu);
    if (device->slice)
        snprintf(uuid, length, "MIG-%d-%d", device->gpu, device->slice->number);
    else
        snprintf(uuid, length, "%s", gpus[device->gpu].uuid);
    return OK;
}

struct pci_info { char legacy[16]; uint domain, bus, device, device_id, subsystem_id; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    ENTER(device->gpu);
    *info = (struct pci_info){0};
    strcpy(info->bus_id, gpus[device->gpu].bus_id);
    return OK;
}

int nvmlDeviceGetCpuAffinity(struct device *device, uint size, unsigned long *cores)
{
    ENTER(device->gpu);
    memset(cores, 0, size * sizeof *cores);
    cores[0] = gpus[device->gpu].cores;
    return OK;
}

/* -- readings ------------------------------------------------------------------------------------------------------ */

struct memory { ull total, free, used; };
struct memory_v2 { uint version; ull total, reserved, free, used; };
struct utilization { uint gpu, memory; };
struct temperature { uint version; int sensor, celsius; };

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    ENTER(device->gpu);
    struct gpu *g = &gpus[device->gpu];
    ull reserved = g->total / 64;
    *memory = (struct memory){g->total, g->total - g->used - reserved, g->used + reserved};
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    ENTER(device->gpu);
    struct gpu *g = &gpus[device->gpu];
    ull reserved = g->total / 64;
    if (memory->version != (sizeof *memory | 2 << 24)) return VERSION_MISMATCH;
    *memory = (struct memory_v2){memory->version, g->total, reserved, g->total - g->used - reserved, g->used};
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    ENTER(device->gpu);
    if (gpus[device->gpu].mig == 1) return NOT_SUPPORTED;
    *rates = (struct utilization){gpus[device->gpu].util, 0};
    return OK;
}

int nvmlDeviceGetPowerUsage(struct device *device, uint *milliwatt)
{
    ENTER(device->gpu);
    *milliwatt = gpus[device->gpu].milliwatt;
    return OK;
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, uint *celsius)
{
    ENTER(device->gpu);
    if (sensor != 0) return INVALID_ARGUMENT;
    *celsius = gpus[device->gpu].celsius;
    return OK;
}

int nvmlDeviceGetTemperatureV(struct device *device, struct temperature *temperature)
{
    ENTER(device->gpu);
    if (temperature->version != (sizeof *temperature | 1 << 24)) return VERSION_MISMATCH;
    if (temperature->sensor != 0) return INVALID_ARGUMENT;
    temperature->celsius = gpus[device->gpu].celsius;
    return OK;
}

int nvmlDeviceGetClockInfo(struct device *device, int clock, uint *mhz)
{
    ENTER(device->gpu);
    if (clock != 1) return INVALID_ARGUMENT; /* the clock of the SMs */
    *mhz = gpus[device->gpu].mhz;
    return OK;
}

struct process_info { uint pid; ull bytes; uint instance, compute; };

static int list_processes(struct device *device, int mps, uint *room, struct process_info *listed)
{
    uint count = 0;
    for (int i = 0; i < process_count; i++) {
        struct process *p = &processes[i];
        int there = !device->slice || p->instance == device->slice->instance->id;
        if (p->gpu != device->gpu || p->mps != mps || !there) continue;
        if (listed && count < *room) listed[count] = (struct process_info){p->pid, p->bytes, p->instance, 0};
        count++;
    }
    int fits = count == 0 || (listed && count <= *room);
    *room = count;
    return fits ? OK : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, uint *count, struct process_info *infos)
{
    int code = device->slice ? enter("nvmlDeviceGetComputeRunningProcesses_v3/slice", device->gpu)
                             : enter(__func__, device->gpu);
    return code ? code : list_processes(device, 0, count, infos);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, uint *count, struct process_info *infos)
{
    ENTER(device->gpu);
    return list_processes(device, 1, count, infos);
}
