"""One sitting at a borrowed machine: units of work in order of worth, as many as a budget of time
holds, and one archive from which the next call goes on.

units       what is measured, in which order, and how long it takes
budget      the time there is
results     what was measured: files, how each unit ended, and the archive of both
runner      runs units within a budget
"""
