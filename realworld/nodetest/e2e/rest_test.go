package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

const (
	restSettles = 30 * time.Second // until nothing of the start is left to do
	restWatched = time.Minute
)

// BenchmarkHundredPodsAtRest is what the agent needs of the processor and of memory while a
// hundred pods run and nothing happens but statuses and leases that go to the API server; and what
// the runtime needs in the same minute.
func BenchmarkHundredPodsAtRest(b *testing.B) {
	c := newPacedTown(b)
	c.fill(b)
	time.Sleep(restSettles)
	agent, runtime := c.agent.cmd.Process.Pid, c.node.Pid()
	var agentCPU, runtimeCPU float64
	rounds := 0
	for b.Loop() {
		agentBefore, runtimeBefore := cpuSeconds(b, agent), cpuSeconds(b, runtime)
		start := time.Now()
		time.Sleep(restWatched)
		took := time.Since(start).Seconds()
		agentCPU += (cpuSeconds(b, agent) - agentBefore) / took
		runtimeCPU += (cpuSeconds(b, runtime) - runtimeBefore) / took
		rounds++
	}
	b.ReportMetric(100*agentCPU/float64(rounds), "%core-agent")
	b.ReportMetric(100*runtimeCPU/float64(rounds), "%core-runtime")
	b.ReportMetric(residentMiB(b, agent), "MiB-agent")
	b.ReportMetric(residentMiB(b, runtime), "MiB-runtime")
	c.clear(b)
	c.leavesNothing(b)
	c.agent.signal(b, syscall.SIGTERM)
}

// cpuSeconds is how long a process has run on processors since it began.
func cpuSeconds(b *testing.B, pid int) float64 { return stat(b, pid).CPUTime() }

func residentMiB(b *testing.B, pid int) float64 {
	return float64(stat(b, pid).ResidentMemory()) / (1 << 20)
}

func stat(b *testing.B, pid int) procfs.ProcStat {
	b.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat
}
