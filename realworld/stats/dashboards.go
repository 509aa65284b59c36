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
		unavailable(w, err)
		return
	}
	machine, err := s.machine.get(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	p := newPage(w, r)
	defer p.end()
	p.machine(machine)
	p.containers(found)
}

// containers writes what there is of cgroups. All have all labels of whose they are: one that is
// missing is empty.
func (p *page) containers(found *containers) {
	failed := 0.0
	if found.err != nil {
		failed = 1
	}
	p.begin("container_scrape_error", "Whether the cgroups could not be read: 1, else 0.", true)
	p.put(failed)
	whose := make([]string, len(found.all))
	for i, c := range found.all {
		labels := label(nil, containerLabel, c.container)
		for _, of := range [][2]string{{"id", c.path}, {"image", c.image}, {"name", c.id},
			{namespaceLabel, c.namespace}, {podLabel, c.pod}} {
			labels = label(append(labels, ','), of[0], of[1])
		}
		whose[i] = string(labels)
	}
	for _, f := range families {
		p.begin(f.name, f.help, f.gauge)
		for i, c := range found.all {
			p.whose, p.millis = whose[i], 0
			if !f.timeless {
				p.millis = c.Timestamp.UnixMilli()
			}
			f.of(c, p.put)
		}
		p.whose, p.millis = "", 0
		p.told(found.told[f.name])
	}
	p.begin("container_last_seen", "When the cgroup was looked at, since the Unix epoch.", true)
	for i, c := range found.all {
		p.whose, p.millis = whose[i], c.Timestamp.UnixMilli()
		p.put(math.Floor(float64(c.Timestamp.UnixMilli()) / 1000))
	}
	p.whose, p.millis = "", 0
	p.others(found.told)
}

// machine writes what the machine is.
func (p *page) machine(m *model.MachineInfo) {
	p.begin("cadvisor_version_info", "What the machine runs.", true)
	p.put(1, "cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "",
		"kernelVersion", machine.KernelVersion(), "osVersion", machine.ContainerOsVersion())
	failed := 0.0
	if m == nil {
		failed, m = 1, &model.MachineInfo{}
	}
	p.begin("machine_scrape_error", "Whether the machine could not be looked at: 1, else 0.", true)
	p.put(failed)
	if failed > 0 {
		return
	}
	ids := []string{"boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID}
	for _, one := range []struct {
		name, help string
		value      float64
	}{
		{"cpu_cores", "Logical processors.", float64(m.NumCores)},
		{"cpu_physical_cores", "Cores of processors.", float64(m.NumPhysicalCores)},
		{"cpu_sockets", "Sockets of processors.", float64(m.NumSockets)},
		{"cpu_books", "Books, which have drawers of processors.", float64(m.NumBooks)},
		{"cpu_drawers", "Drawers, which have sockets of processors.", float64(m.NumDrawers)},
		{"memory_bytes", "Memory.", float64(m.MemoryCapacity)},
		{"swap_bytes", "Swap, used or not.", float64(m.SwapCapacity)},
	} {
		p.begin("machine_"+one.name, one.help, true)
		p.put(one.value, ids...)
	}
}
