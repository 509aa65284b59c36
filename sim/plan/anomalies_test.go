package plan

import (
	"encoding/json"
	"testing"
	"time"
)

func TestSignedDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{ //ordered: each alone
		`"+5m"`: 5 * time.Minute, `"-1h"`: -time.Hour, `"3s"`: 3 * time.Second,
	} {
		var s, again SignedDuration
		if err := json.Unmarshal([]byte(text), &s); err != nil || time.Duration(s) != want {
			t.Errorf("%s decodes to %v, %v", text, time.Duration(s), err)
		}
		data, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(data, &again)
		}
		if err != nil || again != s {
			t.Errorf("%s is encoded as %s: %v", text, data, err)
		}
	}
	var s SignedDuration
	if json.Unmarshal([]byte(`"1 hour"`), &s) == nil ||
		json.Unmarshal([]byte(`"-1000h"`), &s) == nil {
		t.Error("an invalid text was decoded")
	}
}
