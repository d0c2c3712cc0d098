"""What bench/report.py, bench/growth.py and bench/peers/compare_step.py share: run, measure, compare, write."""
