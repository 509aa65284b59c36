package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/provision"
)

// prometheusConfig scrapes an agent as clusters do.
const prometheusConfig = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: kubelet, static_configs: [{targets: ["127.0.0.1:%[1]d"]}]}
- job_name: probes
  metrics_path: /metrics/probes
  static_configs: [{targets: ["127.0.0.1:%[1]d"]}]
`

// A real Prometheus scrapes the agent and answers queries.
func TestPrometheus(t *testing.T) {
	if _, err := exec.LookPath("prometheus"); err != nil {
		if err := provision.CheckMachine(); err != nil {
			t.Fatal(err)
		}
		if err := provision.InstallPackages(t.Context(), []string{"prometheus"}, func(line string) {
			t.Log(line)
		}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	agent, server := freePort(t), freePort(t)
	start(t, command(t, "--root-dir", filepath.Join(dir, "root"), "--config",
		write(t, filepath.Join(dir, "config.yaml"), header+
			"enableServer: false\naddress: 127.0.0.1\npodLogsDir: "+
			filepath.Join(dir, "logs")+"\n"),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--hostname-override", "node-a", "--healthz-port", "0",
		"--read-only-port", fmt.Sprint(agent)))
	start(t, exec.CommandContext(t.Context(), "prometheus",
		"--config.file="+write(t, filepath.Join(dir, "prometheus.yml"),
			fmt.Sprintf(prometheusConfig, agent)),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		fmt.Sprintf("--web.listen-address=127.0.0.1:%d", server)))
	awaitSample(t, server, `up{job="kubelet"}`, 1)
	for _, path := range []string{"/metrics", "/metrics/probes"} {
		if missing := undocumented(t, get(t, agent, path)); len(missing) > 0 {
			t.Errorf("%s has what docs/metrics.md has not: %q", path, missing)
		}
	}
	for query, least := range map[string]float64{
		`kubelet_node_name{node="node-a"}`: 1,
		`sum(up)`:                          2,
		`seedlet_steps_total`:              1,
		`sum(kubelet_runtime_operations_errors_total{operation_type="list_containers"})`:  1,
		`kubelet_pleg_relist_duration_seconds_count`:                                      2,
		`histogram_quantile(0.99, rate(kubelet_pleg_relist_duration_seconds_bucket[1m]))`: 0.001,
		`process_start_time_seconds{job="probes"}`:                                        1e9,
	} {
		if got := awaitSample(t, server, query, least); got < least {
			t.Errorf("%s is %v, want %v at least", query, got, least)
		}
	}
}

// undocumented returns the metrics of a page of a running agent that docs/metrics.md lacks.
func undocumented(t *testing.T, text string) []string {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, "# TYPE ")
		name, _, _ := strings.Cut(rest, " ")
		ofProcess := strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_")
		if is && !ofProcess && !strings.Contains(string(page), "| `"+name+"` |") {
			missing = append(missing, name)
		}
	}
	return missing
}

// start runs a command until the end of the test, and prints its output if the test fails.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s says:\n%s", cmd.Path, &said)
		}
	})
}

// awaitSample queries Prometheus until the value is at least the given one, or a timeout.
func awaitSample(t *testing.T, port int, query string, least float64) (last float64) {
	t.Helper()
	for end := time.Now().Add(porttest.Patience); time.Now().Before(end); {
		if v, ok := sample(port, query); ok {
			if last = v; last >= least {
				return last
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return last
}

// sample returns the value of the first series that a query finds; false if it finds none.
func sample(port int, query string) (float64, bool) {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/query?query=%s", port,
		url.QueryEscape(query)))
	if err != nil {
		return 0, false // Prometheus does not listen yet
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"` // the time, and the value as text
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil ||
		len(answer.Data.Result) == 0 {
		return 0, false
	}
	text, _ := answer.Data.Result[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && v == v
}
