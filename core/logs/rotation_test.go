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

const log = "/var/log/pods/ns_p_u/web/0.log"

func job(files ...File) *Job {
	return &Job{Target: Target{ID: "c", Path: log}, Listed: true, Files: files}
}

// text is an operation in one line.
func text(body any) string {
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

// What is to be done follows from what is in the directory, whoever left it so.
func TestNext(t *testing.T) {
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
		{"and then it is", []File{full, {a, 1}}, 3, "compress " + a},
		{"compressed ones stay", []File{full, {a + ".gz", 1}}, 3,
			"rename 0.log 0.log.20260101-000000"},
		{"one too many, with the one to come", []File{full, {a + ".gz", 1}, {b, 1}}, 3,
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
		got := text(job(test.files...).next(100, test.max, t0))
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if got := text((&Job{}).next(100, 3, t0)); got != "list" {
		t.Errorf("first: %q, want list", got)
	}
}

// Only the log's own files are looked at: those of another run and of somebody else stay.
func TestListing(t *testing.T) {
	j := &Job{Target: Target{Path: log}}
	j.done(op.Record{Call: "ListDir"}, &world.DirListed{Entries: []world.DirEntry{
		{Name: "0.log", Size: 7}, {Name: "0.log.20250101-000000.gz"}, {Name: "0.log.keep"},
		{Name: "1.log"}, {Name: "10.log.20250101-000000"}, {Name: ".0.log.keep"},
	}})
	want := []File{{"0.log", 7}, {"0.log.20250101-000000.gz", 0}}
	if diff := cmp.Diff(want, j.Files); diff != "" {
		t.Error(diff)
	}
}

// A rotated log has the latest stamp of all, even if the clock was set back.
func TestStamp(t *testing.T) {
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
		if got := stamp("0.log", rotated, t0.Add(time.Millisecond)); got != want {
			t.Errorf("after %q: %s, want %s", newest, got, want)
		}
	}
}

// If the runtime has refused to open a new log, the old one gets its name back; if it has not
// answered, it may still open one, which the old one must not replace.
func TestRefused(t *testing.T) {
	const moved = "0.log.20250101-000000"
	refuse := func(kind world.ErrorKind) (*Job, bool) {
		j := job(File{moved, 100})
		j.Moved = moved
		return j, j.failed("ReopenContainerLog", world.Errorf(kind, "ReopenContainerLog", "no"))
	}
	if _, goesOn := refuse(world.KindTimeout); goesOn {
		t.Error("the job goes on although the runtime may still do it")
	}
	j, goesOn := refuse(world.KindInternal)
	if got := text(j.next(100, 3, t0)); !goesOn || got != "list" {
		t.Fatalf("goes on %t with %q, want list", goesOn, got)
	}
	j.done(op.Record{Call: "ListDir"}, &world.DirListed{
		Entries: []world.DirEntry{{Name: moved, Size: 100}}})
	if got := text(j.next(100, 3, t0)); got != "rename "+moved+" 0.log" {
		t.Fatalf("%q, want the name back", got)
	}
	j.done(op.Record{Call: "Rename", Subject: "0.log"}, nil)
	if got := text(j.next(100, 3, t0)); got != "" {
		t.Errorf("%q after all, want to wait for the next round", got)
	}
	j, _ = refuse(world.KindInternal)
	j.done(op.Record{Call: "ListDir"}, &world.DirListed{
		Entries: []world.DirEntry{{Name: "0.log"}, {Name: moved, Size: 100}}})
	if got := text(j.next(100, 3, t0)); got != "" {
		t.Errorf("%q although the runtime has opened a new one, want nothing", got)
	}
}

// directory is a world with one container that writes to whatever file it has open.
type directory struct {
	files map[string][]byte
	open  string // the name that the runtime's file has now
	dead  bool
}

func (d *directory) NextLog(after Cursor) (Target, bool) {
	return Target{Cursor: Cursor{"u", "web"}, ID: "c", Path: log}, after == Cursor{} && !d.dead
}

func (d *directory) Writes(Target) bool { return !d.dead }

func (d *directory) do(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.ListDir:
		list := &world.DirListed{}
		for _, name := range slices.Sorted(maps.Keys(d.files)) {
			list.Entries = append(list.Entries,
				world.DirEntry{Name: name, Size: int64(len(d.files[name]))})
		}
		return list, nil
	case *world.RemoveTree:
		delete(d.files, path.Base(b.Path))
	case *world.Compress:
		name := path.Base(b.Path)
		d.files[name+".gz"] = d.files[name]
		delete(d.files, name)
	case *world.Rename:
		from, to := path.Base(b.From), path.Base(b.To)
		if _, taken := d.files[to]; taken {
			panic(to + " is overwritten")
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

// kept is what is in all files together, in order; the log is not read from a file that it should
// not be written to.
func (d *directory) kept() []byte {
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if name != "0.log" {
			all = append(all, d.files[name]...)
		}
	}
	return append(all, d.files["0.log"]...)
}

// However often the agent is killed between two operations, and whichever of them fail before or
// after their effect: nothing is lost but the oldest, and in the end there are no more files than
// may be, and none is too large.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &directory{files: map[string][]byte{"0.log": {}}, open: "0.log"}
		fresh := func() (*Rotation, *op.Table) {
			return &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 1, Period: 10 * time.Second},
				&op.Table{}
		}
		r, table := fresh()
		var out op.Out
		now, written := t0, 0
		round := func(quiet bool) {
			if !quiet {
				for range rapid.IntRange(0, 150).Draw(t, "bytes") {
					d.files[d.open] = fmt.Appendf(d.files[d.open], "%c", 'a'+written%26)
					written++
				}
			}
			now = now.Add(10 * time.Second)
			for range 20 {
				out.Begin(table, now)
				r.Plan(d, &out)
				for _, eff := range out.Take() {
					if eff.Op == 0 {
						continue
					}
					fate := 0
					if !quiet {
						fate = rapid.IntRange(0, 9).Draw(t, "fate")
					}
					ev := world.Event{Time: now, Op: eff.Op}
					if fate != 1 {
						ev.Body, ev.Err = d.do(eff.Body)
					}
					if fate == 1 || fate == 2 {
						ev.Body, ev.Err = nil, world.Errorf(world.KindInternal, "", "fate")
					}
					if fate == 3 {
						r, table = fresh() // the agent is killed
						continue
					}
					rec, _ := table.Settle(eff.Op)
					out.Begin(table, now)
					r.Answered(eff.Op, rec, ev, &out)
				}
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			round(false)
		}
		for range 3 {
			round(true)
		}
		if len(d.files) > 4 || d.open != "0.log" || len(d.files["0.log"]) >= 100 {
			t.Fatalf("in the end: %v, written to is %s", d.files, d.open)
		}
		kept := d.kept()
		for i := range kept {
			if want := byte('a' + (written-len(kept)+i)%26); kept[i] != want {
				t.Fatalf("of %d bytes the last %d are not those that were kept: %v", written,
					len(kept), d.files)
			}
		}
		if len(kept) < min(written, 300) {
			t.Fatalf("of %d bytes %d were kept", written, len(kept))
		}
	})
}

// Many containers are looked at one after the other, with no more at once than asked for.
func TestRoundIsBounded(t *testing.T) {
	r := &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 2, Period: 10 * time.Second}
	table, out, many := &op.Table{}, &op.Out{}, crowd(5)
	now, lists := t0, 0
	for range 10 {
		out.Begin(table, now)
		wake := r.Plan(many, out)
		effects := slices.Clone(out.Take())
		if len(effects) > 2 {
			t.Fatalf("%d operations at once, want 2 at most", len(effects))
		}
		for _, eff := range effects {
			lists++
			rec, _ := table.Settle(eff.Op)
			r.Answered(eff.Op, rec, world.Event{Op: eff.Op, Time: now, Body: &world.DirListed{
				Entries: []world.DirEntry{{Name: "0.log", Size: 1}}}}, out)
		}
		if len(effects) == 0 {
			if !wake.Equal(t0.Add(10*time.Second)) || lists != 5 {
				t.Fatalf("%d logs looked at, again at %v; want 5, after 10s", lists, wake)
			}
			return
		}
	}
	t.Fatal("the round does not end")
}

type crowd int

func (n crowd) NextLog(after Cursor) (Target, bool) {
	next := 0
	if after.UID != "" {
		fmt.Sscanf(after.UID, "u%d", &next)
		next++
	}
	return Target{Cursor: Cursor{fmt.Sprintf("u%d", next), "web"}, Path: log}, next < int(n)
}

func (crowd) Writes(Target) bool { return true }

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

// However a log is cut, the last bytes are those of the whole.
func TestTailOfPart(t *testing.T) {
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
	table, out := &op.Table{}, &op.Out{}
	keep := func(l Link) bool { return l.UID == "u" && l.ID == "alive" || !l.Dangling }
	step := func(now time.Time) (any, world.OpID, time.Time) {
		out.Begin(table, now)
		wake := l.Plan(keep, out)
		if effects := out.Take(); len(effects) > 0 {
			return effects[0].Body, effects[0].Op, wake
		}
		return nil, 0, wake
	}
	answer := func(id world.OpID, ev world.Event) {
		rec, _ := table.Settle(id)
		l.Answered(rec, ev, keep)
	}
	body, id, _ := step(t0)
	if diff := cmp.Diff(&world.ReadLinks{Path: "/links"}, body); diff != "" {
		t.Fatal(diff)
	}
	link := func(id, target string, dangling bool) world.Link {
		return world.Link{Name: "p_ns_web-1-" + id + ".log", Target: target, Dangling: dangling}
	}
	const target = "/var/log/pods/ns_p_u/web-1/0.log"
	answer(id, world.Event{Body: &world.LinksRead{Links: []world.Link{
		link("alive", target, true), link("dead", target, true), link("leads", target, false),
		link("gone", target, true), link("other", "/somewhere/else/ns_p_u/0.log", true),
		{Name: "README", Target: target, Dangling: true},
	}}})
	var removed []string
	for body, id, _ = step(t0); body != nil; body, id, _ = step(t0) {
		removed = append(removed, body.(*world.RemoveTree).Path)
		answer(id, world.Event{Body: &world.Done{}})
	}
	want := []string{"/links/p_ns_web-1-dead.log", "/links/p_ns_web-1-gone.log"}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Error(diff)
	}
	if _, _, wake := step(t0.Add(time.Second)); !wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("again at %v, want a minute later", wake)
	}
}

// A link that cannot be removed is not tried again at once.
func TestLinkThatStays(t *testing.T) {
	l := &Links{Dir: "/links", LogsDir: "/l", NextAt: t0.Add(time.Minute)}
	l.Found = []Link{{Name: "a", UID: "u", ID: "i"}, {Name: "b", UID: "u", ID: "i"}}
	table, out, none := &op.Table{}, &op.Out{}, func(Link) bool { return false }
	out.Begin(table, t0)
	l.Plan(none, out)
	l.Answered(op.Record{Call: "RemoveTree"}, world.Event{
		Err: world.Errorf(world.KindRefused, "RemoveTree", "read-only file system")}, none)
	out.Begin(table, t0)
	wake := l.Plan(none, out)
	if len(out.Take()) > 0 || !wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("tried again, or woken at %v", wake)
	}
}

// A container that has ended before it wrote to a new log leaves the old one under its name.
func TestContainerEndsMeanwhile(t *testing.T) {
	const moved = "0.log.20250101-000000"
	r := &Rotation{BytesMax: 100, FilesMax: 4, JobsMax: 1}
	table, out, d := &op.Table{}, &op.Out{}, &directory{dead: true}
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
		out.Begin(table, t0)
		j := job(test.files...)
		j.Moved = test.moved
		r.advance(j, d, out)
		got := ""
		if effects := out.Take(); len(effects) > 0 {
			got = text(effects[0].Body)
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.files, got, test.want)
		}
	}
}
