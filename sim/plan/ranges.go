package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time that is not negative, written as in "1m30s".
type Duration time.Duration

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads the text form. A negative duration is an error.
func (d *Duration) UnmarshalJSON(data []byte) error {
	parsed, err := parseDuration(jsonText(data))
	*d = Duration(parsed)
	return err
}

// String returns the text form.
func (d Duration) String() string { return time.Duration(d).String() }

// SignedDuration is a length of time with a sign, written as in "-1h" or "+5m".
type SignedDuration time.Duration

// MarshalJSON writes the text form.
func (s SignedDuration) MarshalJSON() ([]byte, error) {
	sign := "+"
	if s < 0 {
		sign = ""
	}
	return json.Marshal(sign + time.Duration(s).String())
}

// UnmarshalJSON reads the text form.
func (s *SignedDuration) UnmarshalJSON(data []byte) error {
	d, err := time.ParseDuration(jsonText(data))
	if err != nil || d.Abs() > durationMax {
		return fmt.Errorf("want a duration with a sign as +5m or -1h, of at most %s, have %s",
			durationMax, data)
	}
	*s = SignedDuration(d)
	return nil
}

// Span is a range of lengths of time, written "1s..5s", or "3s" for a single value.
type Span struct{ Least, Most time.Duration }

// MarshalJSON writes the text form.
func (s Span) MarshalJSON() ([]byte, error) {
	if s.Least == s.Most {
		return json.Marshal(s.Least.String())
	}
	return json.Marshal(s.Least.String() + ".." + s.Most.String())
}

// UnmarshalJSON reads the text form.
func (s *Span) UnmarshalJSON(data []byte) (err error) {
	s.Least, s.Most, err = parseRange(jsonText(data), parseDuration)
	return err
}

func (s Span) draw(r *rand.Rand) time.Duration {
	if s.Least == s.Most {
		return s.Least
	}
	return (s.Least + time.Duration(r.Int64N(int64(s.Most-s.Least)+1))).Round(time.Millisecond)
}

// Count is a range of whole numbers, written "0..5", or 3 for a single value.
type Count struct{ Least, Most int }

// UnmarshalJSON reads the text form.
func (c *Count) UnmarshalJSON(data []byte) (err error) {
	c.Least, c.Most, err = parseRange(jsonText(data), func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > countMax {
			return 0, fmt.Errorf("want a whole number from 0 to %d, have %q", countMax, s)
		}
		return n, nil
	})
	return err
}

// countMax bounds how many of one thing a scenario may request.
const countMax = 10_000

func (c Count) draw(r *rand.Rand) int { return c.Least + r.IntN(c.Most-c.Least+1) }

// Share is a range of probabilities, written "0.1..0.5", or 0.2 for a single value.
type Share struct{ Least, Most float64 }

// UnmarshalJSON reads the text form.
func (s *Share) UnmarshalJSON(data []byte) (err error) {
	s.Least, s.Most, err = parseRange(jsonText(data), func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return 0, fmt.Errorf("want a number from 0 to 1, have %q", s)
		}
		return f, nil
	})
	return err
}

// The product is rounded by itself: some processors would add to it without rounding, and a seed
// would mean something else there.
func (s Share) draw(r *rand.Rand) float64 {
	return s.Least + float64(r.Float64()*(s.Most-s.Least))
}

// drawBool draws true with a probability that is itself drawn from the range.
func (s Share) drawBool(r *rand.Rand) bool { return r.Float64() < s.draw(r) }

func parseRange[T int | float64 | time.Duration](s string, parse func(string) (T, error)) (
	least, most T, err error) {
	from, to, isRange := strings.Cut(s, "..")
	if least, err = parse(from); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return least, least, nil
	}
	if most, err = parse(to); err != nil {
		return 0, 0, err
	}
	if most < least {
		return 0, 0, fmt.Errorf("want LEAST..MOST with LEAST not above MOST, have %q", s)
	}
	return least, most, nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > durationMax {
		return 0, fmt.Errorf("want a duration as 500ms or 1m30s, of at most %s, have %q",
			durationMax, s)
	}
	return d, nil
}

// durationMax bounds every length of time in a file.
const durationMax = 7 * 24 * time.Hour

// jsonText returns a JSON value as it is written in the file, without the quotes of a string.
func jsonText(data []byte) string {
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	return string(data)
}
