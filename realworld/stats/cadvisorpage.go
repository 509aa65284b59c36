package stats

import (
	"math"
	"net/http"

	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
)

func (s *Source) serveCadvisor(w http.ResponseWriter, r *http.Request) {
	found, err := s.cadvisor.get(r.Context())
	if err != nil {
		respondUnavailable(w, err)
		return
	}
	machine, err := s.machine.get(r.Context())
	if err != nil {
		respondUnavailable(w, err)
		return
	}
	p := newMetricsPage(w, r)
	defer p.close()
	p.writeMachine(machine)
	p.writeContainers(found)
}

// writeContainers writes the metrics of cgroups. Every series has every identifying label; a
// missing one is empty.
func (p *metricsPage) writeContainers(found *cgroupSample) {
	failed := 0.0
	if found.err != nil {
		failed = 1
	}
	p.startMetric("container_scrape_error", "1 if the cgroups could not be read, 0 otherwise.", true)
	p.writeSample(failed)
	identityLabels := make([]string, len(found.all))
	for i, c := range found.all {
		labels := appendLabel(nil, containerLabel, c.container)
		for _, of := range [][2]string{{"id", c.path}, {"image", c.image}, {"name", c.id},
			{namespaceLabel, c.namespace}, {podLabel, c.pod}} {
			labels = appendLabel(append(labels, ','), of[0], of[1])
		}
		identityLabels[i] = string(labels)
	}
	for _, f := range metricFamilies {
		p.startMetric(f.name, f.help, f.gauge)
		for i, c := range found.all {
			p.labels, p.millis = identityLabels[i], 0
			if !f.noTimestamp {
				p.millis = c.Timestamp.UnixMilli()
			}
			f.collect(c, p.writeSample)
		}
		p.labels, p.millis = "", 0
		p.writeRuntimeMetric(found.runtimeMetrics[f.name])
	}
	p.startMetric("container_last_seen",
		"Time of the measurement in seconds since the Unix epoch.", true)
	for i, c := range found.all {
		p.labels, p.millis = identityLabels[i], c.Timestamp.UnixMilli()
		p.writeSample(math.Floor(float64(c.Timestamp.UnixMilli()) / 1000))
	}
	p.labels, p.millis = "", 0
	p.writeOtherRuntimeMetrics(found.runtimeMetrics)
}

// writeMachine writes the metrics of the machine.
func (p *metricsPage) writeMachine(m *model.MachineInfo) {
	p.startMetric("cadvisor_version_info",
		"One, with the versions of the kernel and the operating system as labels.", true)
	p.writeSample(1, "cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "",
		"kernelVersion", machine.KernelVersion(), "osVersion", machine.ContainerOsVersion())
	failed := 0.0
	if m == nil {
		failed, m = 1, &model.MachineInfo{}
	}
	p.startMetric("machine_scrape_error",
		"1 if there was an error while reading the data of the machine, 0 otherwise.", true)
	p.writeSample(failed)
	if failed > 0 {
		return
	}
	ids := []string{"boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID}
	for _, one := range []struct {
		name, help string
		value      float64
	}{
		{"cpu_cores", "Number of logical CPUs.", float64(m.NumCores)},
		{"cpu_physical_cores", "Number of physical CPU cores.", float64(m.NumPhysicalCores)},
		{"cpu_sockets", "Number of CPU sockets.", float64(m.NumSockets)},
		{"cpu_books", "Number of CPU books.", float64(m.NumBooks)},
		{"cpu_drawers", "Number of CPU drawers.", float64(m.NumDrawers)},
		{"memory_bytes", "Memory of the machine in bytes.", float64(m.MemoryCapacity)},
		{"swap_bytes", "Swap of the machine in bytes.", float64(m.SwapCapacity)},
	} {
		p.startMetric("machine_"+one.name, one.help, true)
		p.writeSample(one.value, ids...)
	}
}
