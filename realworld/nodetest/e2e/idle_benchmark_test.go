package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

const (
	idleSettleTime   = 30 * time.Second // until all work of the start is done
	idleMeasuredTime = time.Minute
)

// BenchmarkHundredIdlePods measures the CPU time and the memory of the agent while a hundred pods
// run and nothing changes, so that it only writes statuses and leases to the API server. It
// measures the runtime during the same minute.
func BenchmarkHundredIdlePods(b *testing.B) {
	c := newBenchmarkCluster(b)
	c.startAll(b, c.benchmarkPods())
	time.Sleep(idleSettleTime)
	agent, runtime := c.agent.cmd.Process.Pid, c.node.PID()
	var agentCPU, runtimeCPU float64
	rounds := 0
	for b.Loop() {
		agentBefore, runtimeBefore := cpuSeconds(b, agent), cpuSeconds(b, runtime)
		start := time.Now()
		time.Sleep(idleMeasuredTime)
		took := time.Since(start).Seconds()
		agentCPU += (cpuSeconds(b, agent) - agentBefore) / took
		runtimeCPU += (cpuSeconds(b, runtime) - runtimeBefore) / took
		rounds++
	}
	b.ReportMetric(100*agentCPU/float64(rounds), "%core-agent")
	b.ReportMetric(100*runtimeCPU/float64(rounds), "%core-runtime")
	b.ReportMetric(residentMiB(b, agent), "MiB-agent")
	b.ReportMetric(residentMiB(b, runtime), "MiB-runtime")
	c.deleteAllPods(b)
	c.checkNothingLeft(b)
	c.agent.signalAndWait(b, syscall.SIGTERM)
}

// cpuSeconds returns the CPU time of a process since its start.
func cpuSeconds(b *testing.B, pid int) float64 { return processStat(b, pid).CPUTime() }

func residentMiB(b *testing.B, pid int) float64 {
	return float64(processStat(b, pid).ResidentMemory()) / (1 << 20)
}

func processStat(b *testing.B, pid int) procfs.ProcStat {
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
