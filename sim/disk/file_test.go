package disk

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

func mustCallFor[T any](t *testing.T, w *simWorld, body any) *T {
	t.Helper()
	result, err := w.Call(body)
	if err != nil {
		t.Fatal(err)
	}
	return result.(*T)
}

func TestOpenFileSurvivesRename(t *testing.T) {
	w := newWorld(1, nil)
	f := w.disk.Open("/log/0.log")
	f.Append([]byte("one "), 4)
	w.mustCall(t, &world.Rename{From: "/log/0.log", To: "/log/0.log.1"})
	f.Append([]byte("two"), 3)
	w.wantFile(t, "/log/0.log.1", "one two")
	w.wantFacts(t, "PathWritten /log/0.log user", "PathRenamed /log/0.log")
	if w.disk.Open("/log/0.log").Append([]byte("three"), 5); f.Size() != 7 {
		t.Errorf("size %d", f.Size())
	}
	w.wantFile(t, "/log/0.log", "three")
	w.disk.Remove("/log")
	f.Append([]byte("lost"), 4)
	if w.disk.Exists("/log") {
		t.Error("a removed file exists again")
	}
}

func TestLargeFileStoresItsEnd(t *testing.T) {
	w := newWorld(1, nil)
	f, behind := w.disk.Open("/log/0.log"), int64(10<<20)
	f.BeforeRead(func() { f.Append([]byte("the end"), behind); behind = 0 })
	entries := mustCallFor[world.DirListed](t, w, &world.ListDir{Path: "/log"}).Entries
	if len(entries) != 1 || entries[0].Size != 10<<20 {
		t.Errorf("entries %+v", entries)
	}
	tail := mustCallFor[world.TailRead](t, w, &world.ReadTail{Path: "/log/0.log", BytesMax: 9})
	if string(tail.Data) != "\x00\x00the end" || !tail.Truncated {
		t.Errorf("tail %q %v", tail.Data, tail.Truncated)
	}
	measured := mustCallFor[world.TreeMeasured](t, w, &world.MeasureTree{Path: "/log"})
	if measured.Bytes != 10<<20+blockSize || measured.Inodes != 2 {
		t.Errorf("measured %+v", measured)
	}
	for i := range 3 * storedBytesMax / 1000 {
		f.Append(bytes.Repeat([]byte{byte('a' + i%26)}, 1000), 1000)
	}
	if n := len(f.node.data); n != storedBytesMax {
		t.Errorf("%d bytes are stored", n)
	}
	w.mustCall(t, &world.Compress{Path: "/log/0.log"})
	info := mustCallFor[world.PathInfo](t, w, &world.StatPath{Path: "/log/0.log.gz"})
	if info.Size < 1<<20 || info.Size > 2<<20 || w.disk.Exists("/log/0.log") {
		t.Errorf("compressed to %d bytes: %q", info.Size, w.disk.Walk())
	}
}

func TestCompressedContent(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/a", []byte(strings.Repeat("line\n", 1000)))
	for range 2 {
		w.mustCall(t, &world.Compress{Path: "/a"})
	}
	data, _ := w.disk.Read("/a.gz")
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil || string(plain) != strings.Repeat("line\n", 1000) {
		t.Errorf("%v, %d bytes", err, len(plain))
	}
	w.fails(t, &world.Compress{Path: "/absent"}, world.KindNotFound)
	w.disk.Link("/link", "/a.gz")
	w.fails(t, &world.Compress{Path: "/link"}, world.KindInvalid)
}

func TestReadTailRefusesOtherThanRegularFiles(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/m/file", []byte("12345"))
	w.disk.Link("/m/link", "file")
	w.disk.CreateSpecial("/m/pipe", world.PathOther)
	tail := mustCallFor[world.TailRead](t, w, &world.ReadTail{Path: "/m/file", BytesMax: 5})
	if string(tail.Data) != "12345" || tail.Truncated {
		t.Errorf("tail %q %v", tail.Data, tail.Truncated)
	}
	for _, name := range []string{"link", "pipe", "."} {
		w.fails(t, &world.ReadTail{Path: "/m/" + name, BytesMax: 5}, world.KindInvalid)
	}
	w.fails(t, &world.ReadTail{Path: "/m/absent", BytesMax: 5}, world.KindNotFound)
}

func TestLinks(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/v/sub/file", []byte("x"))
	w.disk.CreateSpecial("/v/socket", world.PathSocket)
	w.disk.Link("/l/round", "round")
	for _, target := range []string{"/nowhere", "../v/sub"} {
		w.mustCall(t, &world.MakeLink{Path: "/l/a", Target: target})
	}
	w.mustCall(t, &world.MakeLink{Path: "/l/b", Target: "../v/socket"})
	w.wantFile(t, "/l/a/file", "x")
	for p, want := range map[string]world.PathKind{ //ordered: each for itself
		"/l/a": world.PathDirectory, "/l/b": world.PathSocket, "/l/a/file": world.PathFile,
	} {
		if info := mustCallFor[world.PathInfo](t, w, &world.StatPath{Path: p}); info.Kind != want {
			t.Errorf("%s is a %s", p, info.Kind)
		}
	}
	links := mustCallFor[world.LinksRead](t, w, &world.ReadLinks{Path: "/l"}).Links
	if got := fmt.Sprint(links); got != "[{a ../v/sub false} {b ../v/socket false} "+
		"{round round true}]" {
		t.Errorf("links %s", got)
	}
	w.fails(t, &world.StatPath{Path: "/l/round/x"}, world.KindInvalid)
	w.fails(t, &world.MakeLink{Path: "/v/sub", Target: "x"}, world.KindExists)
	w.mustCall(t, &world.RemoveTree{Path: "/l"})
	w.wantFile(t, "/v/sub/file", "x")
}

func TestShareWithGroup(t *testing.T) {
	w := newWorld(1, nil)
	w.disk.Write("/v/dir/file", nil)
	w.disk.Write("/other", nil)
	w.disk.Link("/v/link", "/other")
	w.mustCall(t, &world.ShareWithGroup{Path: "/v", GID: 7, OnRootMismatch: true})
	for p, want := range map[string]uint32{ //ordered: each for itself
		"/v": 0o2775, "/v/dir": 0o2775, "/v/dir/file": 0o664,
	} {
		if mode, gid := w.disk.ModeAndGroup(p); mode != want || gid != 7 {
			t.Errorf("%s: mode %o, group %d", p, mode, gid)
		}
	}
	if _, gid := w.disk.ModeAndGroup("/other"); gid != 0 {
		t.Error("a link was followed")
	}
	w.disk.Write("/v/late", nil)
	w.mustCall(t, &world.ShareWithGroup{Path: "/v", GID: 7, OnRootMismatch: true})
	if _, gid := w.disk.ModeAndGroup("/v/late"); gid != 0 {
		t.Error("a tree with a correct root was changed")
	}
	w.mustCall(t, &world.ShareWithGroup{Path: "/v", GID: 7, ReadOnly: true})
	if mode, gid := w.disk.ModeAndGroup("/v/late"); gid != 7 || mode != 0o644 {
		t.Errorf("mode %o, group %d", mode, gid)
	}
}

func TestWriteDir(t *testing.T) {
	w, gid := newWorld(1, nil), int64(5)
	write := func(files ...world.DirFile) {
		t.Helper()
		w.mustCall(t, &world.WriteDir{Path: "/v", Files: files, GID: &gid})
	}
	a := world.DirFile{Path: "a", Data: []byte("1"), Mode: 0o600}
	write(a, world.DirFile{Path: "sub/b", Data: []byte("2")})
	w.wantFacts(t, "PathMade /v", "PathWritten /v")
	before := fmt.Sprint(w.disk.Walk())
	write(a, world.DirFile{Path: "sub/b", Data: []byte("2")})
	if after := fmt.Sprint(w.disk.Walk()); after != before || len(w.facts) != 0 {
		t.Errorf("%s became %s", before, after)
	}
	w.wantFile(t, "/v/sub/b", "2")
	if mode, group := w.disk.ModeAndGroup("/v/a"); mode != 0o640 || group != 5 {
		t.Errorf("mode %o, group %d", mode, group)
	}
	write(a)
	if names := w.disk.List("/v"); len(names) != 3 || names[2] != "a" {
		t.Errorf("names %q", names)
	}
	w.disk.Remove("/v/a")
	write(a)
	w.wantFile(t, "/v/a", "1")
	for _, p := range []string{"", "/a", "../a", "b/../a", "..a", "a//b", "a/b"} {
		w.fails(t, &world.WriteDir{Path: "/v", Files: []world.DirFile{a, {Path: p}}},
			world.KindInvalid)
	}
}

func TestPowerLossLeavesOneNameAfterRename(t *testing.T) {
	names := map[string]int{}
	for seed := range uint64(60) {
		w := newWorld(seed, nil)
		w.disk.Write("/log/a", []byte("text"))
		w.Sleep(time.Minute)
		w.mustCall(t, &world.Rename{From: "/log/a", To: "/log/b"})
		w.disk.Open("/log/b").Append([]byte(", more"), 6)
		w.disk.LosePower()
		left := w.disk.List("/log")
		data, _ := w.disk.Read("/log/" + left[0])
		names[fmt.Sprint(left, " ", string(data))]++
	}
	if len(names) != 3 || names["[a] text"]*names["[b] text"]*names["[b] text, more"] == 0 {
		t.Errorf("names after the power loss: %v", names)
	}
}
