package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

// The resident memory of the program falls, and the program goes on.
func TestDropProgramPages(t *testing.T) {
	resident := func() uint64 {
		self, err := procfs.Self()
		if err != nil {
			t.Fatal(err)
		}
		status, err := self.NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		return status.RssFile
	}
	newCommand() // touches many pages
	before := resident()
	if err := dropProgramPages(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after > before*2/3 {
		t.Errorf("%d bytes of files are resident, %d before", after, before)
	}
	if name := newCommand().Name(); name != "seedlet" {
		t.Errorf("the command is %q", name)
	}
}

// Areas that can be written, or have been, are left alone, as are those of other files.
func TestReadOnlyAreas(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 12 /bin/agent
Rss:                 100 kB
Anonymous:             0 kB
00500000-00600000 r--p 00100000 fe:00 12 /bin/agent
Anonymous:             4 kB
00600000-00700000 rw-p 00200000 fe:00 12 /bin/agent
Anonymous:             0 kB
00700000-00800000 r--p 00300000 fe:00 12 /bin/agent
Anonymous:             0 kB
c000000000-c000400000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 13 /lib/libc.so.6
Anonymous:             0 kB
VmFlags: rd ex mr mw me
`
	areas, err := readOnlyAreas(strings.NewReader(smaps), "/bin/agent")
	if want := []area{{0x400000, 0x500000}, {0x700000, 0x800000}}; err != nil ||
		!slices.Equal(areas, want) {
		t.Errorf("%x, %v, want %x", areas, err, want)
	}
}
