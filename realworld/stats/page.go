package stats

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// metricsPage writes metrics in the text format of Prometheus, line by line: with a hundred pods
// /metrics/cadvisor has tens of thousands of lines.
type metricsPage struct {
	w       *bufio.Writer
	gzip    *gzip.Writer // nil unless the client accepts gzip
	name    string       // of the current metric
	labels  string       // the identifying labels: `id="/",name="",…`
	millis  int64        // the timestamp; zero for none
	line    []byte
	started map[string]bool // by name: the samples of a metric must be contiguous
}

// newMetricsPage starts the response to a request. The caller must close the page.
func newMetricsPage(w http.ResponseWriter, r *http.Request) *metricsPage {
	p := &metricsPage{started: map[string]bool{}}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var to io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(err) // only for an invalid level
		}
		p.gzip, to = packed, packed
	}
	p.w = bufio.NewWriterSize(to, 32<<10)
	return p
}

// close flushes the page. Errors are ignored: the client may have disconnected.
func (p *metricsPage) close() {
	_ = p.w.Flush()
	if p.gzip != nil {
		_ = p.gzip.Close()
	}
}

// startMetric writes the header of a metric.
func (p *metricsPage) startMetric(name, help string, gauge bool) {
	kind := "counter"
	if gauge {
		kind = "gauge"
	}
	p.name, p.started[name] = name, true
	help = strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help)
	p.write("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n")
}

// write writes text. Errors are ignored: they say that the client has disconnected.
func (p *metricsPage) write(all ...string) {
	for _, text := range all {
		_, _ = p.w.WriteString(text)
	}
}

// writeSample writes a sample.
func (p *metricsPage) writeSample(value float64, labels ...string) {
	line := append(p.line[:0], p.name...)
	if p.labels != "" || len(labels) > 0 {
		line = append(line, '{')
		line = append(line, p.labels...)
		for i := 0; i+1 < len(labels); i += 2 {
			if i > 0 || p.labels != "" {
				line = append(line, ',')
			}
			line = appendLabel(line, labels[i], labels[i+1])
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

// appendLabel appends NAME="VALUE" with backslashes, quotes and newlines escaped.
func appendLabel(line []byte, name, value string) []byte {
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
