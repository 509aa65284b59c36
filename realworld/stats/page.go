package stats

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// page writes metrics in the text format of Prometheus, line by line: with a hundred pods the page
// for dashboards has tens of thousands.
type page struct {
	w      *bufio.Writer
	packed *gzip.Writer // nil: the client has not asked for that
	name   string       // of the metric
	whose  string       // labels that say of what the value is: `id="/",name="",…`
	millis int64        // when it was so; zero: that is not said
	line   []byte
	begun  map[string]bool // by name: each metric has one place on the page
}

// newPage begins the answer to a request. It must be ended.
func newPage(w http.ResponseWriter, r *http.Request) *page {
	p := &page{begun: map[string]bool{}}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var to io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(err) // there is no such level
		}
		p.packed, to = packed, packed
	}
	p.w = bufio.NewWriterSize(to, 32<<10)
	return p
}

// end writes what is left. Whether the client is still there does not matter any more.
func (p *page) end() {
	_ = p.w.Flush()
	if p.packed != nil {
		_ = p.packed.Close()
	}
}

// begin begins a metric.
func (p *page) begin(name, help string, gauge bool) {
	kind := "counter"
	if gauge {
		kind = "gauge"
	}
	p.name, p.begun[name] = name, true
	help = strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help)
	p.print("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")
}

// print writes text. Once the client has gone the writer says so each time, and nobody needs it.
func (p *page) print(all ...string) {
	for _, text := range all {
		_, _ = p.w.WriteString(text)
	}
}

// put writes a sample.
func (p *page) put(value float64, labels ...string) {
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
