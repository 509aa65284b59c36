package loopcsi

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCheckID(t *testing.T) {
	long := "csi-" + strings.Repeat("0", 64) // of an ephemeral volume
	for _, id := range []string{"vol-1", "a", "A.b_c-1", "a..b", long} {
		if err := checkID("volume", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", ".", "..", "../x", "a/b", "/a", ".a", "-a", "a b", "a\n", "ä",
		"a\x00", strings.Repeat("a", 201)} {
		wantCode(t, checkID("volume", id), codes.InvalidArgument)
	}
}

func TestCheckPath(t *testing.T) {
	for _, path := range []string{"/a", "/a/b/", "/a/..b"} {
		if err := checkPath("path", path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"", "/", "a", "./a", "a/b", "../a", "/a/../b", "/a/./b",
		"/a//b", "/.."} {
		wantCode(t, checkPath("path", path), codes.InvalidArgument)
	}
}

func TestCheckCapability(t *testing.T) {
	for _, c := range []*csi.VolumeCapability{fileSystem(""), fileSystem("xfs"), rawBlock()} {
		if err := checkCapability(c); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range []*csi.VolumeCapability{nil, {}, fileSystem("ext2"), fileSystem("../ext4"),
		withMode(rawBlock(), csi.VolumeCapability_AccessMode_UNKNOWN), withMode(rawBlock(), 99),
		{AccessMode: rawBlock().AccessMode}, {AccessType: rawBlock().AccessType}} {
		wantCode(t, checkCapability(c), codes.InvalidArgument)
	}
}

func TestSizeFor(t *testing.T) {
	const most = 100 * mebibyte
	for _, c := range []struct {
		required, limit, least int64
		want                   int64
		code                   codes.Code
	}{
		{0, 0, 1, sizeDefault, codes.OK},
		{1, 0, 1, mebibyte, codes.OK},
		{mebibyte + 1, 0, 1, 2 * mebibyte, codes.OK},
		{mebibyte + 1, mebibyte + 2, 1, 0, codes.OutOfRange},
		{0, 20 * mebibyte, sizeMinExt4, sizeMinExt4, codes.OK},
		{0, mebibyte, sizeMinExt4, 0, codes.OutOfRange},
		{most, most, 1, most, codes.OK},
		{most + 1, 0, 1, 0, codes.OutOfRange},
		{math.MaxInt64, 0, 1, 0, codes.OutOfRange},
		{1, 0, most + 1, 0, codes.OutOfRange},
		{2, 1, 1, 0, codes.InvalidArgument},
		{-1, 0, 1, 0, codes.InvalidArgument},
		{0, -1, 1, 0, codes.InvalidArgument},
	} {
		r := &csi.CapacityRange{RequiredBytes: c.required, LimitBytes: c.limit}
		if got, err := sizeFor(r, c.least, most); got != c.want || status.Code(err) != c.code {
			t.Errorf("%+v: got %d, %v", c, got, err)
		}
	}
}

func TestPage(t *testing.T) {
	all := func() []item { return []item{{id: "a"}, {id: "b"}, {id: "c"}} }
	for _, c := range []struct {
		token      string
		entriesMax int32
		want, next string
	}{
		{"", 0, "abc", ""},
		{"", 3, "abc", ""},
		{"", 2, "ab", "after=b"},
		{"after=b", 2, "c", ""},
		{"after=aa", 1, "b", "after=b"}, // what the token names was removed
		{"after=z", 0, "", ""},
	} {
		got, next, err := page(all(), c.token, c.entriesMax)
		var ids strings.Builder
		for i := range slices.Values(got) {
			ids.WriteString(i.id)
		}
		if err != nil || ids.String() != c.want || next != c.next {
			t.Errorf("%+v: got %s, %q, %v", c, ids.String(), next, err)
		}
	}
	_, _, err := page(all(), "b", 0)
	wantCode(t, err, codes.Aborted)
	_, _, err = page(all(), "after=../x", 0)
	wantCode(t, err, codes.Aborted)
	_, _, err = page(all(), "", -1)
	wantCode(t, err, codes.InvalidArgument)
}

func TestParseFault(t *testing.T) {
	call, f, err := ParseFault("NodeStageVolume:delay=2s,before=UNAVAILABLE,after=ABORTED,times=3")
	want := Fault{2e9, codes.Unavailable, codes.Aborted, 3}
	if err != nil || call != "NodeStageVolume" || f != want {
		t.Errorf("got %s, %+v, %v", call, f, err)
	}
	for _, text := range []string{"", "NodeStageVolume", "A:delay=x", "A:after=NO", "A:often=1",
		"A:times=x"} {
		if _, _, err := ParseFault(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
