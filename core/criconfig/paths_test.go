package criconfig

import "testing"

func TestParseLogName(t *testing.T) {
	for name, want := range map[string]int32{
		"0.log": 0, "12.log": 12, "2147483647.log": 2147483647, "3.log.20260101-000000": 3,
		"3.log.20260101-000000.gz": 3, ".4.log.20260101-000000.tmp": 4,
		"": -1, ".": -1, "log": -1, ".log": -1, "x.log": -1, "-1.log": -1, "+1.log": -1, "01.log": -1,
		"1.txt": -1, "1.logs": -1, "1log": -1, ".1.log": -1, "..1.log.gz": -1, "2147483648.log": -1,
	} {
		restarts, isLog := ParseLogName(name)
		if isLog != (want >= 0) || isLog && restarts != want {
			t.Errorf("%q: %d, %v, want %d", name, restarts, isLog, want)
		}
		if isLog && want == 12 && LogName(restarts) != name {
			t.Errorf("%q becomes %q", name, LogName(restarts))
		}
	}
}
