package oracle

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
)

// logs fires when output of a container is lost before its time: the file that the container
// writes to is removed or compressed, a file is renamed over another, or a rotated file is
// removed although more may be kept.
type logs struct {
	files     map[string]bool   // that exist
	openFiles map[string]string // by container ID: the file that a running container writes to
}

func (*logs) describe() Entry {
	return Entry{"logs", "No output of a running container is lost from its log but the " +
		"oldest, when more has been written than is kept."}
}

func (l *logs) checkFact(m *model, f *truth.Fact) *finding {
	if l.files == nil {
		l.files, l.openFiles = map[string]bool{}, map[string]string{}
	}
	switch f.Kind {
	case truth.ContainerStarted:
		if c := m.containers[f.ContainerID]; c != nil {
			l.openFiles[c.id] = c.logPath
		}
	case truth.ContainerExited, truth.ContainerRemoved:
		if c := m.containers[f.ContainerID]; c != nil && l.openFiles[c.id] != "" {
			c.logLost = l.openFiles[c.id] != c.logPath
		}
		delete(l.openFiles, f.ContainerID)
	case truth.PathWritten:
		l.applyWritten(m, f.Path)
	case truth.PathRenamed:
		return l.checkRenamed(m, f)
	case truth.PathRemoved:
		return l.checkRemoved(m, f)
	}
	return nil
}

// applyWritten records that a file exists. If its name is that of a log, the runtime has opened
// it.
func (l *logs) applyWritten(m *model, file string) {
	if !isWithin(file, m.opts.LogsDir) {
		return
	}
	l.files[file] = true
	for id := range l.openFiles { //ordered: at most one has the log
		if m.containers[id].logPath == file {
			l.openFiles[id] = file
		}
	}
}

func (l *logs) checkRenamed(m *model, f *truth.Fact) *finding {
	if !l.files[f.Path] {
		return nil
	}
	if l.files[f.NewPath] {
		return findingf("%s was replaced by %s", f.NewPath, path.Base(f.Path))
	}
	delete(l.files, f.Path)
	l.files[f.NewPath] = true
	for _, c := range m.containers { //ordered: at most one has the log
		c.logLost = c.logLost || c.state == exited && c.logPath == f.Path
	}
	for id, file := range l.openFiles { //ordered: at most one has the file
		if file == f.Path {
			l.openFiles[id] = f.NewPath
		}
	}
	return nil
}

func (l *logs) checkRemoved(m *model, f *truth.Fact) *finding {
	if !isWithin(f.Path, m.opts.LogsDir) && !isWithin(m.opts.LogsDir, f.Path) {
		return nil
	}
	if !l.files[f.Path] { // a directory, which other oracles check
		for file := range l.files { //ordered: each is removed or kept by itself
			if isWithin(file, f.Path) {
				delete(l.files, file)
			}
		}
		return nil
	}
	delete(l.files, f.Path)
	if f.Cause != "" {
		return nil
	}
	for id, file := range l.openFiles { //ordered: at most one has the file
		c := m.containers[id]
		if file == f.Path {
			return findingf("%s was removed while %s writes to it", file, c)
		}
		if !isRotatedFrom(f.Path, c.logPath) {
			continue
		}
		stamps := l.rotationStamps(c.logPath)
		stamp := strings.TrimSuffix(f.Path[len(c.logPath)+1:], ".gz")
		if !stamps[stamp] && len(stamps) < m.opts.LogFilesMax-2 {
			return findingf("%s was removed, although only %d others of %s "+
				"are kept", f.Path, len(stamps), c)
		}
	}
	return nil
}

// rotationStamps returns the suffixes of the rotated files of a log.
func (l *logs) rotationStamps(log string) map[string]bool {
	stamps := map[string]bool{}
	for file := range l.files { //ordered: into a set
		if isRotatedFrom(file, log) {
			stamps[strings.TrimSuffix(file[len(log)+1:], ".gz")] = true
		}
	}
	return stamps
}

// isRotatedFrom reports whether a file is a rotated file of a log, by its name.
func isRotatedFrom(file, log string) bool {
	return len(file) > len(log) && file[len(log)] == '.' && file[:len(log)] == log
}

// logDir returns the directory of a container's logs.
func (m *model) logDir(p *pod, container string) string {
	namespace, name, _ := strings.Cut(p.fullName.name, "/")
	return fmt.Sprintf("%s/%s_%s_%s/%s", m.opts.LogsDir, namespace, name, p.uid, container)
}

func (m *model) logPath(c *container) string {
	return fmt.Sprintf("%s/%d.log", m.logDir(c.pod, c.name), c.logNumber())
}

// logNumber returns the number in the names of a run's log files.
func (c *container) logNumber() int32 {
	if c.restartCount < 0 {
		return int32(c.attempt)
	}
	return c.restartCount
}

// File is an entry of a directory of the simulated disk.
type File struct {
	Name   string
	Size   int64
	Target string // of a link
}

// rotationBound is how long a log may be too large, without a fault: two checks and a rotation.
func (m *model) rotationBound() time.Duration {
	return 2*m.opts.LogMonitorInterval + 10*time.Second
}

// unsettledLogs returns what is wrong with logs and links, in lines.
func (m *model) unsettledLogs(now time.Time) []string {
	if m.opts.ListFiles == nil {
		return nil
	}
	for _, c := range m.containers { //ordered: each by itself
		c.linkTarget = ""
	}
	var lines []string
	for link := range m.opts.ListFiles(m.opts.LogLinksDir) {
		if c := m.logLinks[link.Name]; c != nil {
			c.linkTarget = link.Target
			continue
		}
		lines = append(lines, fmt.Sprintf("link %s is left of a container that was removed", link.Name))
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil {
			continue
		}
		lines = append(lines, m.leftoverLogs(p)...)
		for _, c := range p.containers {
			if c.state == running {
				lines = append(lines, m.logProblems(c, now)...)
			}
		}
	}
	return lines
}

// leftoverLogs returns files of runs that have no record any more. Three kinds are left until the
// pod goes, since the agent removes no single files of unknown runs: files that a power loss
// restored, files of an agent that died while it removed the pod and whose successor finds the
// pod desired again, and files of runs that an administrator removed.
func (m *model) leftoverLogs(p *pod) []string {
	if p.hadPowerLoss || p.removedByHand || p.timesRemoved > 0 && m.agentStartedAt.After(p.removedAt) {
		return nil
	}
	var lines []string
	for i, c := range p.containers {
		if slices.ContainsFunc(p.containers[:i], func(o *container) bool {
			return o.name == c.name
		}) {
			continue // its directory is done
		}
		for file := range m.opts.ListFiles(path.Dir(c.logPath)) {
			number, _, _ := strings.Cut(file.Name, ".")
			if !slices.ContainsFunc(p.containers, func(o *container) bool {
				return o.name == c.name && strconv.Itoa(int(o.logNumber())) == number
			}) {
				lines = append(lines, fmt.Sprintf("pod %s: %s/%s is left of a run that was removed",
					p, c.name, file.Name))
			}
		}
	}
	return lines
}

// logProblems returns what is wrong with the log of a running container.
func (m *model) logProblems(c *container, now time.Time) []string {
	dir, base := path.Split(c.logPath)
	var lines []string
	count, size := 0, int64(-1)
	for file := range m.opts.ListFiles(dir) {
		if file.Name == base {
			size = file.Size
		}
		if file.Name == base || isRotatedFrom(file.Name, base) {
			count++
		}
	}
	if size < m.opts.LogBytesMax {
		c.logFullSince = time.Time{}
	} else if c.logFullSince.IsZero() {
		c.logFullSince = now
	}
	if !c.logFullSince.IsZero() && now.Sub(c.logFullSince) > m.rotationBound() {
		lines = append(lines, fmt.Sprintf("%s has a log of %d bytes, above the limit of %d for %v", c,
			size, m.opts.LogBytesMax, now.Sub(c.logFullSince)))
	}
	if size < 0 {
		lines = append(lines, fmt.Sprintf("%s has no log", c))
	}
	if count > m.opts.LogFilesMax {
		lines = append(lines, fmt.Sprintf("%s has %d log files, and may have %d", c, count,
			m.opts.LogFilesMax))
	}
	if m.logLinks[c.linkName] == c && c.linkTarget != c.logPath {
		lines = append(lines, fmt.Sprintf("%s has a link to %q, want %s", c, c.linkTarget, c.logPath))
	}
	return lines
}

// logLinkName returns the name of the link to a container's log. Before its suffix it has at most
// 251 bytes, as in the kubelet, so that the newest of several containers may have the link.
func logLinkName(c *container) string {
	namespace, name, _ := strings.Cut(c.pod.fullName.name, "/")
	link := fmt.Sprintf("%s_%s_%s-%s", name, namespace, c.name, c.id)
	return link[:min(len(link), 251)] + ".log"
}
