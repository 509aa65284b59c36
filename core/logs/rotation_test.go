package logs

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const logPath = "/var/log/pods/ns_p_u/web/0.log"

func newJob(files ...File) *Job {
	return &Job{Target: Target{ID: "c", Path: logPath}, Listed: true, Files: files}
}

// describe returns an operation as one line.
func describe(body any) string {
	switch b := body.(type) {
	case nil:
		return ""
	case *world.ListDir:
		return "list"
	case *world.RemoveTree:
		return "remove " + path.Base(b.Path)
	case *world.Compress:
		return "compress " + path.Base(b.Path)
	case *world.Rename:
		return "rename " + path.Base(b.From) + " " + path.Base(b.To)
	case *runtimeapi.ReopenContainerLogRequest:
		return "reopen " + b.ContainerId
	}
	return fmt.Sprintf("%T", body)
}

// The next operation follows from the content of the directory alone.
func TestNextOperation(t *testing.T) {
	const a, b, c = "0.log.20250101-000000", "0.log.20250102-000000", "0.log.20250103-000000"
	full, small := File{"0.log", 100}, File{"0.log", 99}
	for _, test := range []struct {
		name  string
		files []File
		max   int
		want  string
	}{
		{"small", []File{small}, 3, ""},
		{"full", []File{full}, 3, "rename 0.log 0.log.20260101-000000"},
		{"empty", []File{{"0.log", 0}}, 3, ""},
		{"the newest rotated one is not compressed before there is another",
			[]File{small, {a, 1}}, 3, ""},
		{"the newest rotated one is compressed before another is made",
			[]File{full, {a, 1}}, 3, "compress " + a},
		{"compressed ones stay", []File{full, {a + ".gz", 1}}, 3,
			"rename 0.log 0.log.20260101-000000"},
		{"one too many with the next", []File{full, {a + ".gz", 1}, {b, 1}}, 3,
			"remove " + a + ".gz"},
		{"not one too many", []File{small, {a + ".gz", 1}, {b, 1}}, 3, ""},
		{"too many", []File{small, {a + ".gz", 1}, {b + ".gz", 1}, {c, 1}}, 3,
			"remove " + a + ".gz"},
		{"only the log itself and one", []File{full, {a, 1}}, 2, "remove " + a},
		{"half compressed", []File{small, {a, 1}, {a + ".gz.tmp", 1}}, 3,
			"remove " + a + ".gz.tmp"},
		{"half compressed, hidden", []File{{"." + a + ".gz.new-1", 1}, small, {a, 1}}, 3,
			"remove ." + a + ".gz.new-1"},
		{"compressed, but not removed", []File{small, {a, 1}, {a + ".gz", 1}}, 3, "remove " + a},
		{"killed between renaming and reopening", []File{{a, 200}, {b, 200}}, 2, "reopen c"},
		{"the log is lost", nil, 3, "reopen c"},
	} {
		got := describe(newJob(test.files...).nextOperation(100, test.max, t0))
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if got := describe((&Job{}).nextOperation(100, 3, t0)); got != "list" {
		t.Errorf("first: %q, want list", got)
	}
}

// Only the files of the log itself count: those of another run and of other programs stay.
func TestOtherFilesAreIgnored(t *testing.T) {
	j := &Job{Target: Target{Path: logPath}}
	j.recordSuccess(op.Record{Call: "ListDir"}, &world.DirListed{Entries: []world.DirEntry{
		{Name: "0.log", Size: 7}, {Name: "0.log.20250101-000000.gz"}, {Name: "0.log.keep"},
		{Name: "1.log"}, {Name: "10.log.20250101-000000"}, {Name: ".0.log.keep"},
	}})
	want := []File{{"0.log", 7}, {"0.log.20250101-000000.gz", 0}}
	if diff := cmp.Diff(want, j.Files); diff != "" {
		t.Error(diff)
	}
}

// A rotated log has the latest timestamp of all, even if the clock was set back.
func TestNewTimestamp(t *testing.T) {
	for newest, want := range map[string]string{
		"":                         "20260101-000000",
		"0.log.20251231-235959.gz": "20260101-000000",
		"0.log.20260101-000000":    "20260101-000001",
		"0.log.20300101-000000":    "20300101-000001",
	} {
		var rotated []string
		if newest != "" {
			rotated = []string{newest}
		}
		if got := newTimestamp("0.log", rotated, t0.Add(time.Millisecond)); got != want {
			t.Errorf("after %q: %s, want %s", newest, got, want)
		}
	}
}

// If the runtime refuses to open a new log, the old log gets its name back. If the reopen timed
// out, the runtime may still open a new log, which the old one must not replace.
func TestReopenRefused(t *testing.T) {
	const moved = "0.log.20250101-000000"
	refuse := func(kind world.ErrorKind) (*Job, bool) {
		j := newJob(File{moved, 100})
		j.RenamedTo = moved
		return j, j.recordFailure("ReopenContainerLog", world.Errorf(kind, "ReopenContainerLog", "no"))
	}
	if _, goesOn := refuse(world.KindTimeout); goesOn {
		t.Error("the job continues although the runtime may still reopen the log")
	}
	j, goesOn := refuse(world.KindInternal)
	if got := describe(j.nextOperation(100, 3, t0)); !goesOn || got != "list" {
		t.Fatalf("continues %t with %q, want list", goesOn, got)
	}
	j.recordSuccess(op.Record{Call: "ListDir"}, &world.DirListed{
		Entries: []world.DirEntry{{Name: moved, Size: 100}}})
	if got := describe(j.nextOperation(100, 3, t0)); got != "rename "+moved+" 0.log" {
		t.Fatalf("%q, want the name restored", got)
	}
	j.recordSuccess(op.Record{Call: "Rename", Subject: "0.log"}, nil)
	if got := describe(j.nextOperation(100, 3, t0)); got != "" {
		t.Errorf("%q after the rename, want nothing before the next pass", got)
	}
	j, _ = refuse(world.KindInternal)
	j.recordSuccess(op.Record{Call: "ListDir"}, &world.DirListed{
		Entries: []world.DirEntry{{Name: "0.log"}, {Name: moved, Size: 100}}})
	if got := describe(j.nextOperation(100, 3, t0)); got != "" {
		t.Errorf("%q although the runtime opened a new log, want nothing", got)
	}
}

// directory simulates one container that writes to its open log, and the log's directory.
type directory struct {
	files map[string][]byte
	open  string // the current name of the file that the container writes to
	dead  bool
}

func (d *directory) NextLog(after Cursor) (Target, bool) {
	return Target{Cursor: Cursor{"u", "web"}, ID: "c", Path: logPath}, after == Cursor{} && !d.dead
}

func (d *directory) IsRunning(Target) bool { return !d.dead }

func (d *directory) do(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.ListDir:
		list := &world.DirListed{}
		for _, name := range slices.Sorted(maps.Keys(d.files)) {
			list.Entries = append(list.Entries,
				world.DirEntry{Name: name, Size: int64(len(d.files[name]))})
		}
		return list, nil
	case *world.MeasureFiles:
		size := int64(world.NotMeasured)
		if data, ok := d.files[path.Base(b.Paths[0])]; ok {
			size = int64(len(data))
		}
		return &world.FilesMeasured{Sizes: []int64{size}}, nil
	case *world.RemoveTree:
		delete(d.files, path.Base(b.Path))
	case *world.Compress:
		name := path.Base(b.Path)
		d.files[name+".gz"] = d.files[name]
		delete(d.files, name)
	case *world.Rename:
		from, to := path.Base(b.From), path.Base(b.To)
		if _, taken := d.files[to]; taken {
			panic(to + " would be overwritten")
		}
		d.files[to] = d.files[from]
		delete(d.files, from)
		if d.open == from {
			d.open = to
		}
	case *runtimeapi.ReopenContainerLogRequest:
		if d.open = "0.log"; d.files["0.log"] == nil {
			d.files["0.log"] = []byte{}
		}
		return &runtimeapi.ReopenContainerLogResponse{}, nil
	}
	return &world.Done{}, nil
}

// content returns the content of all files in order, the log last.
func (d *directory) content() []byte {
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if name != "0.log" {
			all = append(all, d.files[name]...)
		}
	}
	return append(all, d.files["0.log"]...)
}

// Whenever the agent is killed between two operations, and whichever operations fail before or
// after their effect: only the oldest output is lost, and finally the number of files and the size
// of the log are within their limits.
func TestRotationLosesOnlyTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &directory{files: map[string][]byte{"0.log": {}}, open: "0.log"}
		fresh := func() (*Rotation, *op.Table) {
			return &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 1, Period: 10 * time.Second},
				&op.Table{}
		}
		r, table := fresh()
		var effects op.Effects
		now, written := t0, 0
		pass := func(quiet bool) {
			if !quiet {
				for range rapid.IntRange(0, 150).Draw(t, "bytes") {
					d.files[d.open] = fmt.Appendf(d.files[d.open], "%c", 'a'+written%26)
					written++
				}
			}
			now = now.Add(10 * time.Second)
			for range 20 {
				effects.Reset(table, now)
				r.Plan(d, &effects)
				for _, eff := range effects.List() {
					if eff.Op == 0 {
						continue
					}
					outcome := 0
					if !quiet {
						outcome = rapid.IntRange(0, 9).Draw(t, "outcome")
					}
					ev := world.Event{Time: now, Op: eff.Op}
					if outcome != 1 {
						ev.Body, ev.Err = d.do(eff.Body)
					}
					if outcome == 1 || outcome == 2 {
						ev.Body, ev.Err = nil, world.Errorf(world.KindInternal, "", "outcome")
					}
					if outcome == 3 {
						r, table = fresh() // the agent is killed
						continue
					}
					rec, _ := table.Complete(eff.Op)
					effects.Reset(table, now)
					r.HandleCompletion(eff.Op, rec, ev, &effects)
				}
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			pass(false)
		}
		for range 3 {
			pass(true)
		}
		if len(d.files) > 4 || d.open != "0.log" || len(d.files["0.log"]) >= 100 {
			t.Fatalf("finally: %v, the container writes to %s", d.files, d.open)
		}
		held := d.content()
		for i := range held {
			if want := byte('a' + (written-len(held)+i)%26); held[i] != want {
				t.Fatalf("of %d bytes the files do not hold the last %d: %v", written,
					len(held), d.files)
			}
		}
		if len(held) < min(written, 300) {
			t.Fatalf("of %d bytes the files hold %d", written, len(held))
		}
	})
}

// A pass that lists all directories works on JobsMax logs at a time.
func TestPassIsBounded(t *testing.T) {
	r := &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 2, Period: 10 * time.Second}
	table, effects, many := &op.Table{}, &op.Effects{}, manyContainers(5)
	now, lists := t0, 0
	for range 10 {
		effects.Reset(table, now)
		wake := r.Plan(many, effects)
		issued := slices.Clone(effects.List())
		if len(issued) > 2 {
			t.Fatalf("%d operations at once, want 2 at most", len(issued))
		}
		for _, eff := range issued {
			lists++
			rec, _ := table.Complete(eff.Op)
			r.HandleCompletion(eff.Op, rec, world.Event{Op: eff.Op, Time: now, Body: &world.DirListed{
				Entries: []world.DirEntry{{Name: "0.log", Size: 1}}}}, effects)
		}
		if len(issued) == 0 {
			if !wake.Equal(t0.Add(10*time.Second)) || lists != 5 {
				t.Fatalf("%d logs listed, planned again at %v; want 5, after 10s", lists, wake)
			}
			return
		}
	}
	t.Fatal("the pass does not complete")
}

// After the first pass, logs are measured measuredMax at a time, and only the directories of those
// are listed that are full or missing and whose containers still run. A failed measurement is
// repeated in the next pass. Whenever nothing is in flight, the rotation says when it is to be
// planned again.
func TestOnlyFullLogsAreListed(t *testing.T) {
	r := &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 2, Period: 10 * time.Second}
	table, effects, now := &op.Table{}, &op.Effects{}, t0
	sizes := map[string]int64{"u7": 100, "u8": 99, "u130": world.NotMeasured, "u131": 400}
	pass := func(running RunningContainers, failing string) (measured []int, listed int) {
		for {
			effects.Reset(table, now)
			wake := r.Plan(running, effects)
			issued := slices.Clone(effects.List())
			if len(issued) == 0 {
				if !wake.Equal(now.Add(10 * time.Second)) {
					t.Fatalf("nothing is in flight, and it is planned again at %v", wake)
				}
				now = wake
				return measured, listed
			}
			for _, eff := range issued {
				ev := world.Event{Op: eff.Op, Time: now}
				switch b := eff.Body.(type) {
				case *world.MeasureFiles:
					measured = append(measured, len(b.Paths))
					result := &world.FilesMeasured{}
					for _, target := range r.Measured {
						result.Sizes = append(result.Sizes, sizes[target.UID])
					}
					ev.Body = result
				case *world.ListDir:
					listed++
					ev.Body = &world.DirListed{Entries: []world.DirEntry{{Name: "0.log", Size: 1}}}
				}
				rec, _ := table.Complete(eff.Op)
				if rec.Call == failing {
					ev.Body, ev.Err = nil, world.Errorf(world.KindRefused, failing, "no")
				}
				effects.Reset(table, now)
				r.HandleCompletion(eff.Op, rec, ev, effects)
			}
		}
	}
	for _, c := range []struct {
		name     string
		running  RunningContainers
		failing  string
		measured []int
		listed   int
	}{
		{"the first pass", manyContainers(150), "", nil, 150},
		{"the only one due of the first 128 has terminated", stopped{manyContainers(150), "u7"}, "",
			[]int{128, 22}, 2},
		{"directories cannot be listed", manyContainers(150), "ListDir", []int{128, 22}, 3},
		{"logs cannot be measured", manyContainers(150), "MeasureFiles", []int{128, 22}, 0},
		{"after that", manyContainers(8), "", []int{8}, 1},
		{"no container", manyContainers(0), "", nil, 0},
	} {
		measured, listed := pass(c.running, c.failing)
		if !slices.Equal(measured, c.measured) || listed != c.listed {
			t.Errorf("%s: measured %v logs and listed %d directories, want %v and %d", c.name, measured,
				listed, c.measured, c.listed)
		}
	}
}

// stopped are containers of which one has terminated since it was measured.
type stopped struct {
	RunningContainers
	uid string
}

func (s stopped) IsRunning(t Target) bool { return t.UID != s.uid }

type manyContainers int

func (n manyContainers) NextLog(after Cursor) (Target, bool) {
	next := 0
	if after.UID != "" {
		fmt.Sscanf(after.UID, "u%d", &next)
		next++
	}
	return Target{Cursor: Cursor{fmt.Sprintf("u%d", next), "web"}, Path: logPath}, next < int(n)
}

func (manyContainers) IsRunning(Target) bool { return true }

func TestTail(t *testing.T) {
	line := func(tag, text string) string {
		return "2026-01-01T00:00:00.000000001Z stderr " + tag + " " + text + "\n"
	}
	many := strings.Repeat(line("F", "x"), 100)
	long := strings.Repeat("0123456789", 1000)
	for _, test := range []struct {
		name, log string
		truncated bool
		want      string
	}{
		{"nothing", "", false, ""},
		{"lines", line("F", "one") + line("F", "two"), false, "one\ntwo\n"},
		{"a line in parts", line("P", "one, ") + line("F", "two"), false, "one, two\n"},
		{"more tags", line("P:x", "one, ") + line("F:x", "two"), false, "one, two\n"},
		{"no newline yet", strings.TrimSuffix(line("F", "one"), "\n"), false, "one"},
		{"not a log", "hello\nworld\n", false, ""},
		{"many lines", many, false, strings.Repeat("x\n", 80)},
		{"a long line", line("F", long), false, long[10000-2047:] + "\n"},
		{"the end of a long line", long[:TailBytes], true, long[TailBytes-2048 : TailBytes]},
	} {
		if got := string(Tail([]byte(test.log), test.truncated)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// However much of a log's beginning is missing, the tail is that of the whole log.
func TestTailOfPartialLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3000), 0, 120).Draw(t, "lines") {
			whole = append(whole, "2026-01-01T00:00:00.000000001Z stdout F "...)
			whole = append(append(whole, bytes.Repeat([]byte{byte('a' + n%26)}, n)...), '\n')
		}
		part := whole[max(0, len(whole)-TailBytes):]
		want, got := Tail(whole, false), Tail(part, len(part) < len(whole))
		if !bytes.Equal(want, got) {
			t.Fatalf("%d bytes: %q, want %q", len(whole), got, want)
		}
	})
}

func TestLinks(t *testing.T) {
	l := &Links{Dir: "/links", LogsDir: "/var/log/pods"}
	table, effects := &op.Table{}, &op.Effects{}
	isNeeded := func(l Link) bool {
		return l.UID == "u" && l.Name == "p_ns_web-1-alive.log" || !l.Dangling
	}
	step := func(now time.Time) (any, world.OpID, time.Time) {
		effects.Reset(table, now)
		wake := l.Plan(isNeeded, effects)
		if issued := effects.List(); len(issued) > 0 {
			return issued[0].Body, issued[0].Op, wake
		}
		return nil, 0, wake
	}
	complete := func(id world.OpID, ev world.Event) {
		rec, _ := table.Complete(id)
		l.HandleCompletion(rec, ev, isNeeded)
	}
	body, id, _ := step(t0)
	if diff := cmp.Diff(&world.ReadLinks{Path: "/links"}, body); diff != "" {
		t.Fatal(diff)
	}
	link := func(id, target string, dangling bool) world.Link {
		return world.Link{Name: "p_ns_web-1-" + id + ".log", Target: target, Dangling: dangling}
	}
	const target = "/var/log/pods/ns_p_u/web-1/0.log"
	complete(id, world.Event{Body: &world.LinksRead{Links: []world.Link{
		link("alive", target, true), link("dead", target, true), link("leads", target, false),
		link("gone", target, true), link("other", "/somewhere/else/ns_p_u/0.log", true),
		{Name: "README", Target: target, Dangling: true},
		{Name: "p_ns_other-gone.log", Target: target, Dangling: true}, // the name of another container
	}}})
	var removed []string
	for body, id, _ = step(t0); body != nil; body, id, _ = step(t0) {
		removed = append(removed, body.(*world.RemoveTree).Path)
		complete(id, world.Event{Body: &world.Done{}})
	}
	want := []string{"/links/p_ns_web-1-dead.log", "/links/p_ns_web-1-gone.log"}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Error(diff)
	}
	if _, _, wake := step(t0.Add(time.Second)); !wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("planned again at %v, want a minute later", wake)
	}
}

// The name of a link is cut as the kubelet cuts it, and the link is known by its target then.
func TestLongLinkNames(t *testing.T) {
	pod, id := strings.Repeat("p", 200), strings.Repeat("1", 64)
	long := strings.Repeat("c", 50)
	l := &Links{LogsDir: "/logs"}
	for _, c := range []struct{ pod, container, want string }{
		{"p", "c", "p_ns_c-" + id},
		{strings.Repeat("p", 182), "c", strings.Repeat("p", 182) + "_ns_c-" + id[:63]},
		{pod, "c", pod + "_ns_c-" + id[:251-len(pod+"_ns_c-")]},
		{pod, long, pod + "_ns_" + long[:251-len(pod+"_ns_")]},
	} {
		name := LinkName(c.pod, "ns", c.container, id)
		if name != c.want+".log" || len(name) > 255 {
			t.Errorf("name %s, want %s.log", name, c.want)
		}
		want := Link{Name: name, UID: "u", Container: c.container}
		link, isOwn := l.parseLink(world.Link{Name: name,
			Target: "/logs/ns_" + c.pod + "_u/" + c.container + "/0.log"})
		if !isOwn || link != want {
			t.Errorf("%s: own %t, %+v", name, isOwn, link)
		}
		if _, isOwn = l.parseLink(world.Link{Name: "x" + name[1:],
			Target: "/logs/ns_" + c.pod + "_u/" + c.container + "/0.log"}); isOwn {
			t.Errorf("x%s counts as the agent's", name[1:])
		}
	}
}

// A link that cannot be removed is not tried again at once.
func TestLinkRemovalFails(t *testing.T) {
	l := &Links{Dir: "/links", LogsDir: "/l", NextAt: t0.Add(time.Minute)}
	l.Candidates = []Link{{Name: "a", UID: "u"}, {Name: "b", UID: "u"}}
	table, effects, none := &op.Table{}, &op.Effects{}, func(Link) bool { return false }
	effects.Reset(table, t0)
	l.Plan(none, effects)
	l.HandleCompletion(op.Record{Call: "RemoveTree"}, world.Event{
		Err: world.Errorf(world.KindRefused, "RemoveTree", "read-only file system")}, none)
	effects.Reset(table, t0)
	wake := l.Plan(none, effects)
	if len(effects.List()) > 0 || !wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("tried again at once, or planned again at %v", wake)
	}
}

// If a container terminates before it wrote to a new log, the old log gets its name back.
func TestContainerTerminatesDuringRotation(t *testing.T) {
	const moved = "0.log.20250101-000000"
	r := &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 1}
	table, effects, d := &op.Table{}, &op.Effects{}, &directory{dead: true}
	for _, test := range []struct {
		files []File
		moved string
		want  string
	}{
		{[]File{{moved, 100}}, moved, "rename " + moved + " 0.log"},
		{[]File{{"0.log", 0}, {moved, 100}}, moved, ""},
		{[]File{{moved, 100}}, "", ""},
		{[]File{{"0.log", 100}}, "", ""},
	} {
		effects.Reset(table, t0)
		j := newJob(test.files...)
		j.RenamedTo = test.moved
		r.issueNext(j, d, effects)
		got := ""
		if issued := effects.List(); len(issued) > 0 {
			got = describe(issued[0].Body)
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.files, got, test.want)
		}
	}
}
