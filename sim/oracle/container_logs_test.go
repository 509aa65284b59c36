package oracle

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"seedlet.dev/sim/truth"
)

const log0 = logsDir + "/ns_web_u1/app/0.log"

// startLogging starts a container that writes its log, of which three files may be kept.
func startLogging(s *script) run {
	s.model.opts.LogFilesMax = 3
	r := s.startPod(always)
	s.changePath(truth.PathWritten, log0, truth.CauseAdministrator)
	return r
}

func (s *script) renamePath(from, to string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.PathRenamed, Path: from, NewPath: to})
}

// rotate renames the log and has the runtime open a new one.
func (s *script) rotate(stamp string) {
	s.renamePath(log0, log0+"."+stamp)
	s.changePath(truth.PathWritten, log0, truth.CauseAdministrator)
}

// compress replaces a file by its compressed form.
func (s *script) compress(file string) {
	s.changePath(truth.PathWritten, file+".gz", "")
	s.changePath(truth.PathRemoved, file, "")
}

func TestLogs(t *testing.T) {
	runCases(t, []testCase{
		{"rotated", "", func(s *script) {
			startLogging(s)
			for n := range 5 {
				stamp := fmt.Sprintf("2026010%d-000000", n+1)
				s.rotate(stamp)
				if n > 0 {
					s.changePath(truth.PathRemoved, log0+fmt.Sprintf(".2026010%d-000000", n), "")
				}
			}
		}},
		{"compressed", "", func(s *script) {
			startLogging(s)
			s.rotate("20260101-000000")
			s.compress(log0 + ".20260101-000000")
		}},
		{"compressed before the runtime has opened a new one", "logs", func(s *script) {
			startLogging(s)
			s.renamePath(log0, log0+".20260101-000000")
			s.compress(log0 + ".20260101-000000")
		}},
		{"removed while it is written", "logs", func(s *script) {
			startLogging(s)
			s.changePath(truth.PathRemoved, log0, "")
		}},
		{"removed by an administrator", "", func(s *script) {
			startLogging(s)
			s.changePath(truth.PathRemoved, log0, truth.CauseAdministrator)
		}},
		{"removed with its run", "", func(s *script) {
			startLogging(s).exit(1, truth.CauseSelf)
			s.changePath(truth.PathRemoved, log0, "")
		}},
		{"two rotations in one second", "logs", func(s *script) {
			startLogging(s)
			s.rotate("20260101-000000")
			s.rotate("20260101-000000")
		}},
		{"renamed back over a new log", "logs", func(s *script) {
			startLogging(s)
			s.rotate("20260101-000000")
			s.renamePath(log0+".20260101-000000", log0)
		}},
		{"the only rotated file removed", "logs", func(s *script) {
			startLogging(s)
			s.rotate("20260101-000000")
			s.changePath(truth.PathRemoved, log0+".20260101-000000", "")
		}},
	})
}

// Logs and links have to be right in the end.
func TestUnsettledLogs(t *testing.T) {
	const link = "web_ns_app-u1-app#0.log"
	full := []File{{Name: "0.log", Size: 100}}
	for _, test := range []struct {
		name    string
		seconds float64
		logs    []File
		links   []File
		want    string
	}{
		{"right", 100, []File{{Name: "0.log", Size: 99}}, []File{{link, 0, log0}}, ""},
		{"too large, but not for long", 20, full, []File{{link, 0, log0}}, ""},
		{"too large for long", 40, full, []File{{link, 0, log0}}, "has a log of 100 bytes"},
		{"no log", 1, nil, []File{{link, 0, log0}}, "has no log"},
		{"too many files", 1, []File{{Name: "0.log"}, {Name: "0.log.a.gz"}, {Name: "0.log.b.gz"},
			{Name: "0.log.c"}}, []File{{link, 0, log0}}, "has 4 log files, and may have 3"},
		{"no link", 1, []File{{Name: "0.log"}}, nil, `has a link to ""`},
		{"a link to another file", 1, []File{{Name: "0.log"}}, []File{{link, 0, "/x"}},
			`has a link to "/x"`},
		{"a leftover link", 1, []File{{Name: "0.log"}},
			[]File{{link, 0, log0}, {"web_ns_app-gone.log", 0, log0}}, "is left of a container"},
		{"a leftover log", 1, []File{{Name: "0.log"}, {Name: "7.log"}},
			[]File{{link, 0, log0}}, "app/7.log is left of a run"},
	} {
		s := newScript()
		s.model.opts.LogBytesMax, s.model.opts.LogMonitorInterval = 100, 10e9
		startLogging(s)
		s.model.opts.ListFiles = func(dir string) iter.Seq[File] {
			if dir == s.model.opts.LogLinksDir {
				return slices.Values(test.links)
			}
			return slices.Values(test.logs)
		}
		s.model.unsettledLogs(s.now)
		s.wait(test.seconds)
		lines := strings.Join(s.model.unsettledLogs(s.now), "\n")
		if test.want == "" && lines != "" || !strings.Contains(lines, test.want) {
			t.Errorf("%s: %q, want %q", test.name, lines, test.want)
		}
	}
}
