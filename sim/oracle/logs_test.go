package oracle

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

const log0 = logsDir + "/ns_web_u1/app/0.log"

// logging is a pod whose container writes to its log, of which three files may be kept.
func logging(s *story) run {
	s.world.opts.LogFilesMax = 3
	r := s.runs(always)
	s.path(truth.PathWritten, log0, truth.CauseUser)
	return r
}

func (s *story) rename(from, to string) {
	s.Fact(truth.Fact{Time: s.now, Kind: truth.PathRenamed, Path: from, To: to})
}

// rotate gives the log another name and has the runtime open a new one.
func (s *story) rotate(stamp string) {
	s.rename(log0, log0+"."+stamp)
	s.path(truth.PathWritten, log0, truth.CauseUser)
}

// compress replaces a file.
func (s *story) compress(file string) {
	s.path(truth.PathWritten, file+".gz", "")
	s.path(truth.PathRemoved, file, "")
}

func TestLogs(t *testing.T) {
	judge(t, []tale{
		{"rotated", "", func(s *story) {
			logging(s)
			for n := range 5 {
				stamp := fmt.Sprintf("2026010%d-000000", n+1)
				s.rotate(stamp)
				if n > 0 {
					s.path(truth.PathRemoved, log0+fmt.Sprintf(".2026010%d-000000", n), "")
				}
			}
		}},
		{"compressed", "", func(s *story) {
			logging(s)
			s.rotate("20260101-000000")
			s.compress(log0 + ".20260101-000000")
		}},
		{"compressed before the runtime has opened a new one", "logs", func(s *story) {
			logging(s)
			s.rename(log0, log0+".20260101-000000")
			s.compress(log0 + ".20260101-000000")
		}},
		{"removed under its writer", "logs", func(s *story) {
			logging(s)
			s.path(truth.PathRemoved, log0, "")
		}},
		{"removed by hand", "", func(s *story) {
			logging(s)
			s.path(truth.PathRemoved, log0, truth.CauseUser)
		}},
		{"removed with its run", "", func(s *story) {
			logging(s).exit(1, truth.CauseOwn)
			s.path(truth.PathRemoved, log0, "")
		}},
		{"two of one second", "logs", func(s *story) {
			logging(s)
			s.rotate("20260101-000000")
			s.rotate("20260101-000000")
		}},
		{"the name given back over a new log", "logs", func(s *story) {
			logging(s)
			s.rotate("20260101-000000")
			s.rename(log0+".20260101-000000", log0)
		}},
		{"the only old one removed", "logs", func(s *story) {
			logging(s)
			s.rotate("20260101-000000")
			s.path(truth.PathRemoved, log0+".20260101-000000", "")
		}},
	})
}

// What has to come right with logs and links in the end.
func TestLogsUnsettled(t *testing.T) {
	const link = "web_ns_app-u1-app#0.log"
	full := []File{{Name: "0.log", Size: 100}}
	for _, test := range []struct {
		name    string
		seconds float64
		logs    []File
		links   []File
		want    string
	}{
		{"well", 100, []File{{Name: "0.log", Size: 99}}, []File{{link, 0, log0}}, ""},
		{"full, but not for long", 20, full, []File{{link, 0, log0}}, ""},
		{"full for long", 40, full, []File{{link, 0, log0}}, "has a log of 100 bytes"},
		{"no log", 1, nil, []File{{link, 0, log0}}, "has no log"},
		{"too many files", 1, []File{{Name: "0.log"}, {Name: "0.log.a.gz"}, {Name: "0.log.b.gz"},
			{Name: "0.log.c"}}, []File{{link, 0, log0}}, "has 4 files of logs, and may have 3"},
		{"no link", 1, []File{{Name: "0.log"}}, nil, `has a link to ""`},
		{"a link elsewhere", 1, []File{{Name: "0.log"}}, []File{{link, 0, "/x"}},
			`has a link to "/x"`},
		{"a link too many", 1, []File{{Name: "0.log"}},
			[]File{{link, 0, log0}, {"web_ns_app-gone.log", 0, log0}}, "is left of a container"},
		{"a run's log too many", 1, []File{{Name: "0.log"}, {Name: "7.log"}},
			[]File{{link, 0, log0}}, "app/7.log is left of a run"},
	} {
		s := tell()
		s.world.opts.LogBytesMax, s.world.opts.LogPeriod = 100, 10e9
		logging(s)
		s.world.opts.Files = func(dir string) iter.Seq[File] {
			if dir == s.world.opts.LinksDir {
				return slices.Values(test.links)
			}
			return slices.Values(test.logs)
		}
		s.world.logsUnsettled(s.now)
		s.wait(test.seconds)
		lines := strings.Join(s.world.logsUnsettled(s.now), "\n")
		if test.want == "" && lines != "" || !strings.Contains(lines, test.want) {
			t.Errorf("%s: %q, want %q", test.name, lines, test.want)
		}
	}
}

func TestMessage(t *testing.T) {
	shows := func(s *story, message string) {
		p := s.shown("u1", v1.PodRunning, "app#0 terminated")
		p.Status.ContainerStatuses[0].State.Terminated = &v1.ContainerStateTerminated{
			Message: message, ContainerID: "sim://u1-app#0"}
		s.Answer(s.now, []*v1.Pod{p})
	}
	ends := func(said, logged, policy string, code int32) func(*story) {
		return func(s *story) {
			r := s.runs(never)
			s.world.containers["u1-app#0"].fallback = policy != ""
			f := r.f
			f.ExitCode, f.Cause, f.Message, f.LogEnd = code, truth.CauseOwn, said, logged
			s.fact(truth.ContainerExited, f)
		}
	}
	long := strings.Repeat("x", 5000)
	judge(t, []tale{
		{"what it said", "", func(s *story) {
			ends("no cheese", "a\n", "fallback", 1)(s)
			shows(s, "no cheese")
		}},
		{"something else", "message", func(s *story) {
			ends("no cheese", "", "", 1)(s)
			shows(s, "no wine")
		}},
		{"nothing", "message", func(s *story) {
			ends("no cheese", "", "", 1)(s)
			shows(s, "")
		}},
		{"that it cannot be read", "", func(s *story) {
			ends("no cheese", "", "", 1)(s)
			shows(s, unreadable+"log /x: I/O error")
		}},
		{"the end of much", "", func(s *story) {
			ends("y"+long, "", "", 1)(s)
			shows(s, long[:4096])
		}},
		{"the log", "", func(s *story) {
			ends("", "one\ntwo\n", "fallback", 1)(s)
			shows(s, "one\ntwo\n")
		}},
		{"eighty lines of the log", "", func(s *story) {
			ends("", strings.Repeat("x\n", 100), "fallback", 1)(s)
			shows(s, strings.Repeat("x\n", 80))
		}},
		{"the log, without having failed", "message", func(s *story) {
			ends("", "one\n", "fallback", 0)(s)
			shows(s, "one\n")
		}},
		{"the log, unasked", "message", func(s *story) {
			ends("", "one\n", "", 1)(s)
			shows(s, "one\n")
		}},
	})
}
