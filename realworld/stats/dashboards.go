package stats

import (
	"bufio"
	"compress/gzip"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

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
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var to io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(err) // there is no such level
		}
		defer func() { _ = packed.Close() }() // the client may have gone
		to = packed
	}
	p := dashboards{begun: map[string]bool{}, w: bufio.NewWriterSize(to, 32<<10)}
	defer func() { _ = p.w.Flush() }()
	p.machine(machine)
	p.containers(found)
}

// dashboards writes the page, line by line: with a hundred pods it has tens of thousands.
type dashboards struct {
	w      *bufio.Writer
	name   string // of the metric
	whose  string // labels that say of what the value is: `id="/",name="",…`
	millis int64  // when it was so; zero: that is not said
	line   []byte
	begun  map[string]bool // by name: each metric has one place on the page
}

// begin begins a metric.
func (p *dashboards) begin(name, help string, gauge bool) {
	kind := "counter"
	if gauge {
		kind = "gauge"
	}
	p.name, p.begun[name] = name, true
	help = strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help)
	p.print("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")
}

// print writes text. Once the client has gone the writer says so each time, and nobody needs it.
func (p *dashboards) print(all ...string) {
	for _, text := range all {
		_, _ = p.w.WriteString(text)
	}
}

// put writes a sample.
func (p *dashboards) put(value float64, labels ...string) {
	line := append(p.line[:0], p.name...)
	if p.whose != "" || len(labels) > 0 {
		line = append(line, '{')
		line = append(line, p.whose...)
		for i := 0; i+1 < len(labels); i += 2 {
			if i > 0 || p.whose != "" {
				line = append(line, ',')
			}
			line = label(line, labels[i], labels[i+1])
		}
		line = append(line, '}')
	}
	line = append(line, ' ')
	line = strconv.AppendFloat(line, value, 'g', -1, 64)
	if p.millis != 0 {
		line = append(line, ' ')
		line = strconv.AppendInt(line, p.millis, 10)
	}
	p.line = append(line, '\n')
	_, _ = p.w.Write(p.line)
}

// label writes NAME="VALUE", in which backslashes, quotes and new lines are escaped.
func label(line []byte, name, value string) []byte {
	line = append(append(line, name...), '=', '"')
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			line = append(line, '\\', c)
		case '\n':
			line = append(line, '\\', 'n')
		default:
			line = append(line, c)
		}
	}
	return append(line, '"')
}

// containers writes what there is of cgroups. All have all labels of whose they are: one that is
// missing is empty.
func (p *dashboards) containers(found *containers) {
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
func (p *dashboards) machine(m *model.MachineInfo) {
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
