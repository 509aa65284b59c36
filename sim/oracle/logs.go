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

// logs fires when something that a container has written is lost before its time: a file that it
// writes to is removed or compressed, a file takes the name of another, or fewer rotated ones are
// kept than there may be.
type logs struct {
	files map[string]bool   // that exist
	open  map[string]string // by the id of a container that runs, the file that it writes to
}

func (*logs) entry() Entry {
	return Entry{"logs", "Of what a running container writes into its log nothing is lost but " +
		"the oldest, when more has been written than is kept."}
}

func (l *logs) fact(w *world, f *truth.Fact) *finding {
	if l.files == nil {
		l.files, l.open = map[string]bool{}, map[string]string{}
	}
	switch f.Kind {
	case truth.ContainerStarted:
		if c := w.containers[f.ContainerID]; c != nil {
			l.open[c.id] = c.log
		}
	case truth.ContainerExited, truth.ContainerRemoved:
		if c := w.containers[f.ContainerID]; c != nil && l.open[c.id] != "" {
			c.logLost = l.open[c.id] != c.log
		}
		delete(l.open, f.ContainerID)
	case truth.PathWritten:
		l.written(w, f.Path)
	case truth.PathRenamed:
		return l.renamed(w, f)
	case truth.PathRemoved:
		return l.removed(w, f)
	}
	return nil
}

// written takes that there is a file. If it has the name of a log, the runtime has opened it.
func (l *logs) written(w *world, file string) {
	if !within(file, w.opts.LogsDir) {
		return
	}
	l.files[file] = true
	for id := range l.open { //ordered: at most one has the log
		if w.containers[id].log == file {
			l.open[id] = file
		}
	}
}

func (l *logs) renamed(w *world, f *truth.Fact) *finding {
	if !l.files[f.Path] {
		return nil
	}
	if l.files[f.To] {
		return &finding{message: fmt.Sprintf("%s was replaced by %s", f.To, path.Base(f.Path))}
	}
	delete(l.files, f.Path)
	l.files[f.To] = true
	for _, c := range w.containers { //ordered: at most one has the log
		c.logLost = c.logLost || c.state == exited && c.log == f.Path
	}
	for id, file := range l.open { //ordered: at most one has the file
		if file == f.Path {
			l.open[id] = f.To
		}
	}
	return nil
}

func (l *logs) removed(w *world, f *truth.Fact) *finding {
	if !within(f.Path, w.opts.LogsDir) && !within(w.opts.LogsDir, f.Path) {
		return nil
	}
	if !l.files[f.Path] { // a tree, which another oracle judges
		for file := range l.files { //ordered: each is judged by itself
			if within(file, f.Path) {
				delete(l.files, file)
			}
		}
		return nil
	}
	delete(l.files, f.Path)
	if f.Cause != "" {
		return nil
	}
	for id, file := range l.open { //ordered: at most one has the file
		c := w.containers[id]
		if file == f.Path {
			return &finding{message: fmt.Sprintf("%s was removed while %s writes to it", file, c)}
		}
		if !isOf(f.Path, c.log) {
			continue
		}
		kept := l.stamps(c.log)
		stamp := strings.TrimSuffix(f.Path[len(c.log)+1:], ".gz")
		if !kept[stamp] && len(kept) < w.opts.LogFilesMax-2 {
			return &finding{message: fmt.Sprintf("%s was removed, although only %d more of %s "+
				"are kept", f.Path, len(kept), c)}
		}
	}
	return nil
}

// stamps are the endings of the rotated files of a log.
func (l *logs) stamps(log string) map[string]bool {
	stamps := map[string]bool{}
	for file := range l.files { //ordered: into a set
		if isOf(file, log) {
			stamps[strings.TrimSuffix(file[len(log)+1:], ".gz")] = true
		}
	}
	return stamps
}

// isOf says whether a file was made of a log, by their names.
func isOf(file, log string) bool {
	return len(file) > len(log) && file[len(log)] == '.' && file[:len(log)] == log
}

// logDir is where a container of a pod has its logs.
func (w *world) logDir(p *pod, container string) string {
	namespace, name, _ := strings.Cut(p.full.text, "/")
	return fmt.Sprintf("%s/%s_%s_%s/%s", w.opts.LogsDir, namespace, name, p.uid, container)
}

func (w *world) logOf(c *container) string {
	return fmt.Sprintf("%s/%d.log", w.logDir(c.pod, c.name), c.number())
}

// number is by which the files of a run are known.
func (c *container) number() int32 {
	if c.restarts < 0 {
		return int32(c.attempt)
	}
	return c.restarts
}

// File is one in a directory of the simulated disk.
type File struct {
	Name   string
	Size   int64
	Target string // of a link
}

// rotatedWithin is how long a log may be too large when nothing goes wrong: two looks at it, and
// what it takes to rotate it.
func (w *world) rotatedWithin() time.Duration { return 2*w.opts.LogPeriod + 10*time.Second }

// logsUnsettled says what is wrong with logs and links in the end.
func (w *world) logsUnsettled(now time.Time) []string {
	if w.opts.Files == nil {
		return nil
	}
	for _, c := range w.containers { //ordered: each by itself
		c.linked = ""
	}
	var lines []string
	for link := range w.opts.Files(w.opts.LinksDir) {
		if c := w.links[link.Name]; c != nil {
			c.linked = link.Target
			continue
		}
		lines = append(lines, fmt.Sprintf("link %s is left of a container that has gone", link.Name))
	}
	for _, p := range w.order {
		if p.spec == nil {
			continue
		}
		lines = append(lines, w.logsLeft(p)...)
		for _, c := range p.containers {
			if c.state == running {
				lines = append(lines, w.logLacks(c, now)...)
			}
		}
	}
	return lines
}

// logsLeft are files of runs that have no record any more. What a power loss has brought back goes
// with the pod: nobody looks for single files. So does what an agent left that died while it ended
// the pod, whose directory it would have removed as a whole, if the next one finds it wanted. And
// so do those of runs that somebody has removed by hand.
func (w *world) logsLeft(p *pod) []string {
	if p.powerLost || p.byHand || p.removals > 0 && w.started.After(p.removedAt) {
		return nil
	}
	var lines []string
	for i, c := range p.containers {
		if slices.ContainsFunc(p.containers[:i], func(o *container) bool {
			return o.name == c.name
		}) {
			continue // its directory has been looked at
		}
		for file := range w.opts.Files(path.Dir(c.log)) {
			number, _, _ := strings.Cut(file.Name, ".")
			if !slices.ContainsFunc(p.containers, func(o *container) bool {
				return o.name == c.name && strconv.Itoa(int(o.number())) == number
			}) {
				lines = append(lines, fmt.Sprintf("pod %s: %s/%s is left of a run that has gone",
					p, c.name, file.Name))
			}
		}
	}
	return lines
}

// logLacks says what is wrong with the log of a container that runs.
func (w *world) logLacks(c *container, now time.Time) []string {
	dir, base := path.Split(c.log)
	var lines []string
	count, size := 0, int64(-1)
	for file := range w.opts.Files(dir) {
		if file.Name == base {
			size = file.Size
		}
		if file.Name == base || isOf(file.Name, base) {
			count++
		}
	}
	if size < w.opts.LogBytesMax {
		c.fullSince = time.Time{}
	} else if c.fullSince.IsZero() {
		c.fullSince = now
	}
	if !c.fullSince.IsZero() && now.Sub(c.fullSince) > w.rotatedWithin() {
		lines = append(lines, fmt.Sprintf("%s has a log of %d bytes, and at least %d for %v", c,
			size, w.opts.LogBytesMax, now.Sub(c.fullSince)))
	}
	if size < 0 {
		lines = append(lines, fmt.Sprintf("%s has no log", c))
	}
	if count > w.opts.LogFilesMax {
		lines = append(lines, fmt.Sprintf("%s has %d files of logs, and may have %d", c, count,
			w.opts.LogFilesMax))
	}
	if c.linked != c.log {
		lines = append(lines, fmt.Sprintf("%s has a link to %q, want %s", c, c.linked, c.log))
	}
	return lines
}

// linkOf is the name of the link to a container's log.
func linkOf(c *container) string {
	namespace, name, _ := strings.Cut(c.pod.full.text, "/")
	return fmt.Sprintf("%s_%s_%s-%s.log", name, namespace, c.name, c.id)
}
