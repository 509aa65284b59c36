package containerapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// logQuery is a decoded and validated v1.PodLogOptions.
type logQuery struct {
	follow     bool
	previous   bool
	timestamps bool
	tailLines  int64 // negative: all
	limitBytes int64 // 0: no limit
	since      time.Time
	stream     string // "stdout" or "stderr"; empty for both
}

// parseLogQuery decodes the parameters of a log request. As in the kubelet, a parameter that cannot
// be decoded is a 400 and an invalid one a 422, both with a JSON object. Unknown parameters are
// ignored.
func parseLogQuery(q url.Values, now time.Time, splitStreams bool) (logQuery, error) {
	d := decoder{query: q}
	if tail := q.Get("tail"); tail != "" { // of old clients
		d.query = url.Values{"tailLines": {tail}}
		for name, values := range q { //ordered: each has its own key
			if name != "tailLines" {
				d.query[name] = values
			}
		}
		if tail == "all" {
			d.query.Del("tailLines")
		}
	}
	query := logQuery{
		follow: d.flag("follow"), previous: d.flag("previous"), timestamps: d.flag("timestamps"),
		tailLines: -1,
	}
	d.flag("insecureSkipTLSVerifyBackend") // only used by the API server
	tailLines, limitBytes := d.number("tailLines"), d.number("limitBytes")
	sinceSeconds, sinceTime := d.number("sinceSeconds"), d.time("sinceTime")
	if d.err != nil {
		return query, httpErrorf(http.StatusBadRequest, "%s",
			jsonMessage("Unable to decode query", d.err))
	}
	if err := checkLogQuery(q, tailLines, limitBytes, sinceSeconds, sinceTime); err != nil {
		return query, httpErrorf(http.StatusUnprocessableEntity, "%s",
			jsonMessage("Invalid request", err))
	}
	if tailLines != nil {
		query.tailLines = *tailLines
	}
	if limitBytes != nil {
		query.limitBytes = *limitBytes
	}
	switch {
	case sinceSeconds != nil:
		query.since = now.Add(-secondsToDuration(*sinceSeconds))
	case sinceTime != nil:
		query.since = *sinceTime
	}
	stream := q.Get("stream")
	if stream == "" || stream == v1.LogStreamAll {
		return query, nil
	}
	if !splitStreams {
		return query, httpErrorf(http.StatusBadRequest, "unable to return the given log stream: %q. "+
			"Please enable PodLogsQuerySplitStreams feature gate in kubelet", stream)
	}
	query.stream = strings.ToLower(stream)
	return query, nil
}

func checkLogQuery(q url.Values, tailLines, limitBytes, sinceSeconds *int64,
	since *time.Time) error {
	var errs []error
	if tailLines != nil && *tailLines < 0 {
		errs = append(errs, errors.New("tailLines: must be greater than or equal to 0"))
	}
	if limitBytes != nil && *limitBytes < 1 {
		errs = append(errs, errors.New("limitBytes: must be greater than 0"))
	}
	switch {
	case sinceSeconds != nil && since != nil:
		errs = append(errs, errors.New("at most one of sinceTime and sinceSeconds may be given"))
	case sinceSeconds != nil && *sinceSeconds < 1:
		errs = append(errs, errors.New("sinceSeconds: must be greater than 0"))
	}
	switch stream := q.Get("stream"); stream {
	case "", v1.LogStreamAll:
	case v1.LogStreamStdout, v1.LogStreamStderr:
		if tailLines != nil {
			errs = append(errs, errors.New("tailLines and one stream cannot both be given"))
		}
	default:
		errs = append(errs, fmt.Errorf("stream: %q is none of All, Stdout, Stderr", stream))
	}
	return errors.Join(errs...)
}

// secondsToDuration converts seconds to a duration, at most the longest one.
func secondsToDuration(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(1<<63-1)/int64(time.Second))) * time.Second
}

func jsonMessage(prefix string, err error) string {
	text := prefix + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	return `{"message": ` + strconv.QuoteToASCII(text) + `}`
}

// decoder decodes parameters as the API server encodes them, and has the first error. If a
// parameter is repeated, its first value counts.
type decoder struct {
	query url.Values
	err   error
}

// flag is true if the parameter exists and is not "0" or "false".
func (d *decoder) flag(name string) bool {
	value := strings.ToLower(d.query.Get(name))
	return d.query.Has(name) && value != "0" && value != "false"
}

func (d *decoder) number(name string) *int64 {
	if !d.query.Has(name) {
		return nil
	}
	n, err := strconv.ParseInt(d.query.Get(name), 10, 64)
	if err != nil {
		d.fail(name, "not a whole number")
		return nil
	}
	return &n
}

func (d *decoder) time(name string) *time.Time {
	text := d.query.Get(name)
	if text == "" || text == "null" { // encodings of an unset time by old clients
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.fail(name, "not a time in the form of RFC 3339")
		return nil
	}
	return &t
}

func (d *decoder) fail(name, problem string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %s", name, problem)
	}
}
